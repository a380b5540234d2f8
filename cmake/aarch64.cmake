# A toolchain for Arm: Debian's cross-compiler, and the libraries that scripts/ci/aarch64 unpacks into
# LOGITLESS_SYSROOT. Programs run under qemu-aarch64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LOGITLESS_SYSROOT)

set(libraries ${LOGITLESS_SYSROOT}/usr/lib/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${LOGITLESS_SYSROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)  # the headers of Eigen and the JSON library work on any machine
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/pkgconfig:${libraries}/openblas-openmp/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${LOGITLESS_SYSROOT})

set(blas ${libraries}/openblas-openmp)
string(APPEND CMAKE_EXE_LINKER_FLAGS_INIT " -Wl,-rpath-link,${blas}:${libraries}")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu
  -E LD_LIBRARY_PATH=${blas}:${libraries}:/usr/aarch64-linux-gnu/lib)
