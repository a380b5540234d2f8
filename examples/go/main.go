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

// What C keeps pointers to stands in C's memory: Go moves its own.
func inC[T any](values ...T) *T {
	data := (*T)(C.calloc(C.size_t(len(values)), C.size_t(unsafe.Sizeof(values[0]))))
	copy(unsafe.Slice(data, len(values)), values)
	return data
}

func matrix(data *float32, rows, cols C.int64_t) C.logitless_const_matrix {
	return C.logitless_const_matrix{data: unsafe.Pointer(data), rows: rows, cols: cols}
}

func main() {
	var targets C.logitless_targets
	var source C.logitless_source
	var gradients C.logitless_gradients
	var result C.logitless_cross_entropy_result
	hidden, head := inC(C.logitless_hidden_states{}), inC(C.logitless_lm_head{})
	C.logitless_hidden_states_init(hidden, C.sizeof_logitless_hidden_states)
	C.logitless_lm_head_init(head, C.sizeof_logitless_lm_head)
	C.logitless_source_init(&source, C.sizeof_logitless_source)
	C.logitless_targets_init(&targets, C.sizeof_logitless_targets)
	C.logitless_gradients_init(&gradients, C.sizeof_logitless_gradients)
	C.logitless_cross_entropy_result_init(&result, C.sizeof_logitless_cross_entropy_result)

	hidden.states = matrix(inC[float32](1, 0, 0, 1), 2, 2)
	head.weight = matrix(inC[float32](2, 0, 0, 2, 0, 0), 3, 2)
	source.hidden, source.head = hidden, head
	targets.data32, targets.size = inC[C.int32_t](0, 1), 2
	dHidden := inC[float32](0, 0, 0, 0)
	gradients.d_hidden = C.logitless_matrix{data: unsafe.Pointer(dHidden), rows: 2, cols: 2}

	var context *C.logitless_context
	if C.logitless_context_create(nil, &context) != C.LOGITLESS_OK ||
		C.logitless_cross_entropy(context, &source, &targets, nil, &gradients, &result, nil) != C.LOGITLESS_OK {
		log.Fatal(C.GoString(C.logitless_last_error()))
	}
	defer C.logitless_context_free(context)
	fmt.Printf("loss %.4f, d_hidden %.4f\n", float64(result.loss), unsafe.Slice(dHidden, 4))
}
