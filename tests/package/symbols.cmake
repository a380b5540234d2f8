# The shared libraries of this build.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/exports.cmake)

set(profile_header ${SOURCE_DIR}/include/logitless/profile.h)
file(GLOB headers ${SOURCE_DIR}/include/logitless/*.h)
list(REMOVE_ITEM headers ${profile_header} ${SOURCE_DIR}/include/logitless/export.h)
check_exports(${LIBRARY} ${headers})
check_exports(${PROFILE_LIBRARY} ${profile_header})
