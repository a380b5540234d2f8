# The files of `cmake --install`: library, headers, licence, packages for CMake and pkg-config, the command
# and its pages.
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/logitless)

install(TARGETS logitless EXPORT logitlessTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT logitlessTargets NAMESPACE logitless:: DESTINATION ${package_folder})
install(DIRECTORY include/logitless DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The packages of a static library name its dependencies; a shared library is already linked with them.
set(LOGITLESS_IS_STATIC ON)
if(BUILD_SHARED_LIBS)
  set(LOGITLESS_IS_STATIC OFF)
endif()
configure_package_config_file(cmake/logitlessConfig.cmake.in logitlessConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/logitlessConfigVersion.cmake
  COMPATIBILITY ${LOGITLESS_COMPATIBILITY})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/logitlessConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/logitlessConfigVersion.cmake
  DESTINATION ${package_folder})

# pkg-config. A static library's dependencies are not private, because programs link with plain `pkg-config
# --libs`; --static would also ask for the private dependencies of a static OpenBLAS (-lgfortran, which few
# machines have).
set(PC_REQUIRES)
set(PC_LIBS)
if(LOGITLESS_IS_STATIC)
  set(PC_REQUIRES "openblas libhwy")
  # The libraries that a C++ compiler adds by itself, for programs linked by another compiler.
  set(standard_libraries ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
  list(FILTER standard_libraries INCLUDE REGEX "^(stdc\\+\\+|c\\+\\+|m)$")
  list(REMOVE_DUPLICATES standard_libraries)
  list(TRANSFORM standard_libraries PREPEND "-l")
  list(JOIN standard_libraries " " standard_libraries)
  set(PC_LIBS "${OpenMP_CXX_FLAGS} ${standard_libraries}")
  if(LOGITLESS_WITH_ONEDNN)
    string(PREPEND PC_LIBS "-ldnnl ")
  endif()
endif()
foreach(folder LIBDIR INCLUDEDIR)
  set(PC_${folder} ${CMAKE_INSTALL_${folder}})
  if(NOT IS_ABSOLUTE ${PC_${folder}})
    set(PC_${folder} "\${prefix}/${PC_${folder}}")
  endif()
endforeach()
# The file finds the prefix from its own path, because `cmake --install --prefix` may choose another one.
set(PC_PREFIX ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" up ${up})
  set(PC_PREFIX "\${pcfiledir}/${up}")
endif()
configure_file(cmake/logitless.pc.in logitless.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/logitless.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(LOGITLESS_BUILD_CLI)
  install(TARGETS logitless_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(BUILD_SHARED_LIBS)
    file(RELATIVE_PATH to_libraries /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
    set_target_properties(logitless_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${to_libraries}")
  endif()
  if(TARGET logitless_man)
    get_target_property(roff_pages logitless_man ROFF_PAGES)
    install(FILES ${roff_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
endif()

# `cpack -G DEB` in the build folder makes one package for Debian: library, headers, command and pages.
if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_NAME logitless)
  set(CPACK_PACKAGE_CONTACT "The logitless authors <logitless@users.noreply.github.com>")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
  if(CMAKE_CROSSCOMPILING)
    # dpkg-shlibdeps knows only this machine's packages. The linked packages below bring the library's own
    # dependencies; yaml-cpp is for the command.
    if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
      set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
    endif()
    set(depends "libc6, libgcc-s1, libgomp1, libstdc++6, libyaml-cpp-dev, ")
  else()
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  endif()
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
  if(LOGITLESS_IS_STATIC)
    # Programs that link the archive also link its dependencies.
    set(CPACK_DEBIAN_PACKAGE_DEPENDS "${depends}libopenblas-openmp-dev, libhwy-dev")
    if(LOGITLESS_WITH_ONEDNN)
      string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS ", libdnnl-dev")
    endif()
  endif()
  include(CPack)
endif()
