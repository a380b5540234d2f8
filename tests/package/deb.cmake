# Tests Debian's package: built by CPack, installed by dpkg into its own folder, used from there, and removed.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT user STREQUAL "0")
  message("skipped: dpkg wants root")
  return()
endif()

file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})
cmake_path(GET CMAKE_COMMAND PARENT_PATH programs)
run(${programs}/cpack -G DEB -B ${WORK_DIR}/made --config ${BUILD_DIR}/CPackConfig.cmake)
file(GLOB packages ${WORK_DIR}/made/*.deb)
list(LENGTH packages count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "cpack made ${count} packages: ${packages}")
endif()

# The package names its dependencies. dpkg looks for them in the folder, where nothing else is installed.
execute_process(COMMAND dpkg-deb --field ${packages} Package Version Depends OUTPUT_VARIABLE fields
  COMMAND_ERROR_IS_FATAL ANY)
if(NOT fields MATCHES "Package: logitless\n" OR NOT fields MATCHES "Version: ${VERSION}\n"
    OR NOT fields MATCHES "Depends: .*libopenblas" OR NOT fields MATCHES "libhwy")
  message(FATAL_ERROR "the package says of itself\n${fields}")
endif()
set(root ${WORK_DIR}/root)
file(MAKE_DIRECTORY ${root}/var/lib/dpkg/info ${root}/var/lib/dpkg/updates ${root}/var/lib/dpkg/triggers)
file(TOUCH ${root}/var/lib/dpkg/status ${root}/var/lib/dpkg/available)
set(dpkg dpkg --root=${root} --force-depends --force-script-chrootless --log=${WORK_DIR}/dpkg.log)
run(${dpkg} --install ${packages})

# LD_LIBRARY_PATH replaces /usr/lib, which the system's linker searches by itself.
file(GLOB_RECURSE library ${root}/usr/lib/liblogitless.*)
list(GET library 0 library)
cmake_path(GET library PARENT_PATH libraries)
set(ENV{LD_LIBRARY_PATH} ${libraries})
run_consumer(${WORK_DIR}/consumer -DCMAKE_PREFIX_PATH=${root}/usr -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}")
run(${root}/usr/bin/logitless --version)

run(${dpkg} --remove logitless)
file(GLOB_RECURSE left LIST_DIRECTORIES false ${root}/usr/*)
if(left)
  message(FATAL_ERROR "the removed package has left ${left}")
endif()
