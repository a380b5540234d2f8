# Tests find_package(logitless) from an installed tree.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

# A shared library has found its own dependencies, so its users do not need their development files.
set(settings -DCMAKE_PREFIX_PATH=${PREFIX} -DCMAKE_BUILD_TYPE=${BUILD_TYPE} "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}")
if(SHARED)
  foreach(package OpenMP PkgConfig hwy OpenBLAS)
    list(APPEND settings -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
  endforeach()
endif()
run_consumer(${WORK_DIR}/consumer ${settings})

# The version promises an API: version 0.3 satisfies a request for 0.3, but not for 0.2 or 0.4.
foreach(version 0.2 0.4 1.0)
  expect_configure_error(${WORK_DIR}/version_${version} "compatible with requested version \"${version}\""
    -DCMAKE_PREFIX_PATH=${PREFIX} -DLOGITLESS_WANTED_VERSION=${version})
endforeach()

# Installed files do not name the build or source tree.
file(GLOB_RECURSE packages ${PREFIX}/*.cmake ${PREFIX}/*.pc)
list(LENGTH packages count)
if(count LESS 5)
  message(FATAL_ERROR "these files are all of the installed packages: ${packages}")
endif()
foreach(package ${packages})
  file(READ ${package} text)
  foreach(path ${BUILD_DIR} ${SOURCE_DIR})
    string(FIND "${text}" "${path}/" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${package} names ${path}")
    endif()
  endforeach()
endforeach()
foreach(file share/doc/logitless/LICENSE include/logitless/version.h)
  if(NOT EXISTS ${PREFIX}/${file})
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()

# The installed command finds the installed library.
run(${CMAKE_COMMAND} -E env --unset=LD_LIBRARY_PATH ${PREFIX}/bin/logitless --version)
