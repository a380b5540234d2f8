# Read by ctest, with `program`, `list` and `properties` set: adds an entry for each suite of the program's
# tests. `list` is the output of --gtest_list_tests. One process runs a suite, because loading the BLAS and
# the OpenMP runtime takes longer than most tests.
cmake_path(GET list STEM name)
if(NOT EXISTS ${list})
  add_test(${name}_NOT_BUILT ${name}_NOT_BUILT)
  return()
endif()
file(STRINGS ${list} suites REGEX "^[^ ]+\\.( |$)")
foreach(suite IN LISTS suites)
  string(REGEX REPLACE "\\..*" "" suite "${suite}")
  set(entry ${name}.${suite})
  add_test(${entry} ${program} --gtest_brief=1 "--gtest_filter=${suite}.*")
  set_tests_properties(${entry} PROPERTIES ${properties})
endforeach()
