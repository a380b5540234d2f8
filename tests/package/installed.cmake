# find_package(logitless) from an installed tree.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

file(REMOVE_RECURSE ${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
run_consumer(${WORK_DIR}/consumer -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_BUILD_TYPE=${BUILD_TYPE}
  "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}")

# Nothing of the build or source tree is named in what was installed.
file(GLOB_RECURSE configs ${WORK_DIR}/prefix/*.cmake)
if(NOT configs)
  message(FATAL_ERROR "no package configuration was installed")
endif()
foreach(config ${configs})
  file(READ ${config} text)
  foreach(path ${BUILD_DIR} ${SOURCE_DIR})
    string(FIND "${text}" "${path}/" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${config} names ${path}")
    endif()
  endforeach()
endforeach()
