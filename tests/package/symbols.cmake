# Checks the shared library of this build.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/exports.cmake)

file(GLOB headers ${SOURCE_DIR}/include/logitless/*.h)
list(REMOVE_ITEM headers ${SOURCE_DIR}/include/logitless/export.h)
check_exports(${LIBRARY} ${headers})
