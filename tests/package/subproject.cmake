# add_subdirectory(logitless) as a shared library, and what that library exports.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

run_consumer(${WORK_DIR}/consumer -DLOGITLESS_SOURCE_DIR=${SOURCE_DIR} -DBUILD_SHARED_LIBS=ON -DLOGITLESS_BUILD_PROFILE=ON
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1)  # what it exports does not depend on how fast it is

file(GLOB_RECURSE libraries ${WORK_DIR}/consumer/liblogitless.so)
list(GET libraries 0 library)
execute_process(COMMAND ${NM} -D -C --defined-only ${library} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE ";" "," symbols "${symbols}")
string(REGEX MATCHALL "[^\n]+" symbols "${symbols}")
set(exported 0)
foreach(symbol ${symbols})
  string(REGEX REPLACE "^[0-9a-f ]+([A-Za-z]) (.*)$" "\\1;\\2" parts "${symbol}")
  list(GET parts 0 kind)
  list(GET parts 1 name)
  if(name MATCHES "^(vtable for |typeinfo for |typeinfo name for |VTT for )?logitless::" AND
     NOT name MATCHES "logitless::(core|dense|engine|gemm|loss|rows)::|anonymous namespace")
    math(EXPR exported "${exported} + 1")
  elseif(kind MATCHES "^[WVu]$" AND name MATCHES "std::|__gnu_cxx::")
    # libstdc++ gives the templates of namespace std default visibility, whatever the flags say.
  else()
    list(APPEND strangers "${name}")
  endif()
endforeach()
if(strangers)
  list(JOIN strangers "\n  " strangers)
  message(FATAL_ERROR "the shared library also exports\n  ${strangers}")
endif()
if(exported LESS 10)
  message(FATAL_ERROR "the shared library exports only ${exported} symbols of logitless")
endif()

# A project without a build type is told that the library will be slow.
file(REMOVE_RECURSE ${WORK_DIR}/no_build_type)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${WORK_DIR}/no_build_type -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DLOGITLESS_SOURCE_DIR=${SOURCE_DIR} -DLOGITLESS_BUILD_PROFILE=ON
  OUTPUT_QUIET ERROR_VARIABLE warnings COMMAND_ERROR_IS_FATAL ANY)
if(NOT warnings MATCHES "built without optimisation")
  message(FATAL_ERROR "no warning of a missing build type")
endif()
