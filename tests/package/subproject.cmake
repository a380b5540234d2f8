# Tests add_subdirectory(logitless) as a shared library: its exports, and what the parent installs.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/exports.cmake)

# A release build has the same objects as this build, so ccache finds them. Others are new, and are built with
# -O1, because they need not be fast.
set(flags -DLOGITLESS_WARNINGS_AS_ERRORS=${WARNINGS_AS_ERRORS})
if(NOT BUILD_TYPE STREQUAL Release)
  list(APPEND flags -DCMAKE_CXX_FLAGS_RELEASE=-O1)
endif()
run_consumer(${WORK_DIR}/consumer -DLOGITLESS_SOURCE_DIR=${SOURCE_DIR} -DBUILD_SHARED_LIBS=ON
  -DCMAKE_BUILD_TYPE=Release ${flags})

file(GLOB headers ${SOURCE_DIR}/include/logitless/*.h)
list(FILTER headers EXCLUDE REGEX "/export[.]h$")
check_exports(${WORK_DIR}/consumer/logitless/src/liblogitless.so ${headers})

# By default a subproject installs nothing into its parent's prefix.
run(${CMAKE_COMMAND} --install ${WORK_DIR}/consumer --prefix ${WORK_DIR}/nothing)
file(GLOB_RECURSE installed ${WORK_DIR}/nothing/*)
if(installed)
  message(FATAL_ERROR "a subproject has installed ${installed}")
endif()
run(${CMAKE_COMMAND} -DLOGITLESS_INSTALL=ON ${WORK_DIR}/consumer)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/consumer)
run(${CMAKE_COMMAND} --install ${WORK_DIR}/consumer --prefix ${WORK_DIR}/asked)
if(NOT EXISTS ${WORK_DIR}/asked/include/logitless/logitless.h)
  message(FATAL_ERROR "LOGITLESS_INSTALL=ON has not installed the headers")
endif()

# A project without a build type gets a warning that the library will be slow.
file(REMOVE_RECURSE ${WORK_DIR}/no_build_type)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${WORK_DIR}/no_build_type -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DLOGITLESS_SOURCE_DIR=${SOURCE_DIR}
  OUTPUT_QUIET ERROR_VARIABLE warnings COMMAND_ERROR_IS_FATAL ANY)
if(NOT warnings MATCHES "built without optimisation")
  message(FATAL_ERROR "no warning of a missing build type")
endif()
