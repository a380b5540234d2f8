// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0

//! The loss of a small head, and its gradient, through the C API. Once the library is installed:
//! rustc main.rs -C link-args="$(pkg-config --libs logitless)"

use std::ffi::{c_char, c_int, c_void, CStr, CString};

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    dtype: i32,
    axes: i32,
    sizes: [i64; 3],
    strides: [i64; 3],
}

const FLOAT32: i32 = 0;
const INT64: i32 = 5;

extern "C" {
    fn logitless_call_new(context: *const c_void, task: *const c_char) -> *mut c_void;
    fn logitless_call_free(call: *mut c_void);
    fn logitless_set_tensor(call: *mut c_void, name: *const c_char, tensor: *const Tensor) -> c_int;
    fn logitless_run(call: *mut c_void) -> c_int;
    fn logitless_get_number(call: *mut c_void, name: *const c_char, value: *mut f64) -> c_int;
    fn logitless_last_error() -> *const c_char;
}

fn text(name: &str) -> CString {
    CString::new(name).unwrap()
}

/// The memory must stay valid and in place until the call has run.
unsafe fn set<T>(call: *mut c_void, name: &str, values: &mut [T], dtype: i32, cols: i64) {
    let rows = values.len() as i64 / cols.max(1);
    let (axes, sizes) = if cols == 0 { (1, [values.len() as i64, 0, 0]) } else { (2, [rows, cols, 0]) };
    let tensor = Tensor { data: values.as_mut_ptr().cast(), dtype, axes, sizes, strides: [0; 3] };
    logitless_set_tensor(call, text(name).as_ptr(), &tensor);
}

fn main() {
    let (mut hidden, mut weight) = ([1f32, 0., 0., 1.], [2f32, 0., 0., 2., 0., 0.]);
    let (mut targets, mut d_hidden, mut loss) = ([0i64, 1], [0f32; 4], 0f64);
    unsafe {
        let call = logitless_call_new(std::ptr::null(), text("cross_entropy").as_ptr());
        set(call, "hidden", &mut hidden, FLOAT32, 2);
        set(call, "weight", &mut weight, FLOAT32, 2);
        set(call, "targets", &mut targets, INT64, 0);
        set(call, "d_hidden", &mut d_hidden, FLOAT32, 2);
        if logitless_run(call) != 0 || logitless_get_number(call, text("loss").as_ptr(), &mut loss) != 0 {
            panic!("{}", CStr::from_ptr(logitless_last_error()).to_string_lossy());
        }
        logitless_call_free(call);
    }
    println!("loss {loss:.4}, d_hidden {d_hidden:.4?}");
}
