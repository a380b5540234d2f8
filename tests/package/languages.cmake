# Checks the messages for projects without C++, or with an older standard.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

set(no_cxx "logitless is a C\\+\\+20 library and .* has no C\\+\\+: write project\\(logitless_consumer LANGUAGES C CXX\\)")
expect_configure_error(${WORK_DIR}/c_package "${no_cxx}" -DCONSUMER_LANGUAGE=C -DCMAKE_PREFIX_PATH=${PREFIX})
expect_configure_error(${WORK_DIR}/c_subproject "${no_cxx}" -DCONSUMER_LANGUAGE=C -DLOGITLESS_SOURCE_DIR=${SOURCE_DIR})

# CMake takes the standard from the library, whatever standard the project sets.
run_consumer(${WORK_DIR}/cxx17_project -DCMAKE_PREFIX_PATH=${PREFIX} -DCMAKE_CXX_STANDARD=17
  -DCMAKE_BUILD_TYPE=${BUILD_TYPE} "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}")

# Without CMake, each header prints one line, and the compiler stops there.
file(GLOB headers RELATIVE ${PREFIX}/include ${PREFIX}/include/logitless/*.h)
list(REMOVE_ITEM headers logitless/version.h logitless/c_api.h)  # these are C, too
foreach(header IN LISTS headers)
  file(WRITE ${WORK_DIR}/header.cc "#include <${header}>\n")
  execute_process(COMMAND ${CXX_COMPILER} -std=c++17 -fsyntax-only -I${PREFIX}/include ${WORK_DIR}/header.cc
    RESULT_VARIABLE status ERROR_VARIABLE errors)
  string(REGEX MATCHALL "[^\n]*error: [^\n]*" errors "${errors}")
  list(LENGTH errors count)
  list(GET errors 0 first)
  if(status EQUAL 0 OR NOT count EQUAL 2 OR NOT first MATCHES "logitless needs C\\+\\+20: compile with -std=c\\+\\+20")
    list(JOIN errors "\n" errors)
    message(FATAL_ERROR "as C++17 <${header}> ends with ${status} and ${count} errors:\n${errors}")
  endif()
endforeach()
