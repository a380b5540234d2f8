// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0

// Command go computes the loss of a small head, and its gradient, through the C API. Once the library is
// installed: go run main.go
package main

// #cgo pkg-config: logitless
// #include <stdlib.h>
// #include <logitless/c_api.h>
import "C"

import (
	"fmt"
	"log"
	"unsafe"
)

// Tensors that a call keeps are in C's memory, because Go may move its own.
func inC[T any](values ...T) *T {
	data := (*T)(C.malloc(C.size_t(len(values)) * C.size_t(unsafe.Sizeof(values[0]))))
	copy(unsafe.Slice(data, len(values)), values)
	return data
}

func main() {
	call := C.logitless_call_new(nil, C.CString("cross_entropy"))
	defer C.logitless_call_free(call)
	dHidden := inC[float32](0, 0, 0, 0)
	set := func(name string, data *float32, rows, cols C.int64_t) {
		C.logitless_set_2d(call, C.CString(name), unsafe.Pointer(data), C.LOGITLESS_FLOAT32, rows, cols)
	}
	set("hidden", inC[float32](1, 0, 0, 1), 2, 2)
	set("weight", inC[float32](2, 0, 0, 2, 0, 0), 3, 2)
	set("d_hidden", dHidden, 2, 2)
	C.logitless_set_1d(call, C.CString("targets"), unsafe.Pointer(inC[int64](0, 1)), C.LOGITLESS_INT64, 2)

	var loss C.double
	if C.logitless_run(call) != C.LOGITLESS_OK || C.logitless_get_number(call, C.CString("loss"), &loss) != C.LOGITLESS_OK {
		log.Fatal(C.GoString(C.logitless_last_error()))
	}
	fmt.Printf("loss %.4f, d_hidden %.4f\n", float64(loss), unsafe.Slice(dHidden, 4))
}
