# Tests a Makefile with pkg-config, from an installed tree.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

file(GLOB_RECURSE package ${PREFIX}/logitless.pc)
cmake_path(GET package PARENT_PATH packages)
cmake_path(GET packages PARENT_PATH libraries)
set(ENV{PKG_CONFIG_PATH} ${packages})
if(SHARED)
  # Users of a shared library do not need the packages of its dependencies.
  set(ENV{PKG_CONFIG_LIBDIR} ${packages})
  set(ENV{LD_LIBRARY_PATH} ${libraries})
endif()

file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})
run(make -C ${WORK_DIR} -f ${CMAKE_CURRENT_LIST_DIR}/consumer/Makefile CXX=${CXX_COMPILER} "CXXFLAGS=${CXX_FLAGS} -O1")
run_programs(${WORK_DIR})

execute_process(COMMAND pkg-config --modversion logitless OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
if(NOT version STREQUAL VERSION)
  message(FATAL_ERROR "pkg-config calls the version ${version}: it is ${VERSION}")
endif()
