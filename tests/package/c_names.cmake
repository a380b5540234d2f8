# Compares the names of the C API with c_symbols.txt: those that its header declares, and in a shared library
# those that it exports, with their symbol version.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/exports.cmake)

set(list tests/package/c_symbols.txt)
file(STRINGS ${SOURCE_DIR}/${list} listed)
set(sorted ${listed})
list(SORT sorted)
list(REMOVE_DUPLICATES sorted)
if(NOT sorted STREQUAL "${listed}")
  list(JOIN sorted "\n" sorted)
  message(FATAL_ERROR "${list} is not sorted. It should be\n${sorted}")
endif()

# Fails if `names`, which `source` has, differ from the list.
function(compare_names source names)
  foreach(name ${listed})
    if(NOT name IN_LIST names)
      list(APPEND messages "${source} has no ${name}, which ${list} lists. This breaks the ABI: a program that calls "
        "it does not start any more. Keep the function, or raise the version that LOGITLESS_SOVERSION follows and "
        "remove the line.\n")
    endif()
  endforeach()
  foreach(name ${names})
    if(NOT name IN_LIST listed)
      list(APPEND messages "${source} has ${name}, which ${list} does not list: add a line, in alphabetical order.\n")
    endif()
  endforeach()
  if(messages)
    list(JOIN messages "" messages)
    message(FATAL_ERROR "${messages}")
  endif()
endfunction()

read_api(declared classes structs ${SOURCE_DIR}/include/logitless/c_api.h)
compare_names(include/logitless/c_api.h "${declared}")

if(SHARED)
  execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[A-Za-z] logitless_[^\n]*" exported "${symbols}")
  foreach(symbol ${exported})
    if(NOT symbol MATCHES "^T (logitless_[a-z0-9_]+)@@LOGITLESS_1$")
      message(FATAL_ERROR "${LIBRARY} exports \"${symbol}\", not a function with the version LOGITLESS_1")
    endif()
    list(APPEND names ${CMAKE_MATCH_1})
  endforeach()
  compare_names(${LIBRARY} "${names}")
endif()
