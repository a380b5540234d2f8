# The commands of docs/getting-started.md build all that they install.
cmake_minimum_required(VERSION 3.25)

file(READ ${SOURCE_DIR}/docs/getting-started.md page)
if(NOT page MATCHES "cmake --build --preset release --target ([^\n]+)\ncmake --install build/release")
  message(FATAL_ERROR "docs/getting-started.md does not say how to build and install")
endif()
set(documented "${CMAKE_MATCH_1}")
separate_arguments(targets UNIX_COMMAND ${documented})
execute_process(COMMAND ${NINJA} -C ${BUILD_DIR} -t commands ${targets}
  OUTPUT_VARIABLE commands COMMAND_ERROR_IS_FATAL ANY)

set(products 0)
file(READ ${BUILD_DIR}/cmake_install.cmake text)
string(REGEX MATCHALL "\"${BUILD_DIR}/[^\"$]+\"" paths "${text}")
foreach(path IN LISTS paths)
  string(REGEX REPLACE "^\"${BUILD_DIR}/|\"$" "" path ${path})
  if(path MATCHES "[.](cmake|pc)$")
    continue()  # made by the configuration
  endif()
  math(EXPR products "${products} + 1")
  string(FIND "${commands}" "${path}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "`--target ${documented}` does not build ${path}, which is installed")
  endif()
endforeach()
if(products LESS 3)
  message(FATAL_ERROR "the installation copies ${products} built files: nothing was checked")
endif()
