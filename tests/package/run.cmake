# Commands that the package tests share. A failing one ends the test with its output.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
endfunction()

# Configures, builds and runs the consumer; further arguments go to its configuration. It must say nothing.
function(run_consumer build_dir)
  file(REMOVE_RECURSE ${build_dir})
  run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${build_dir} -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CXX_COMPILER} "-DCMAKE_CXX_COMPILER_LAUNCHER=${CXX_LAUNCHER}" ${ARGN})
  run(${CMAKE_COMMAND} --build ${build_dir} --parallel 2)
  foreach(program consumer profile_consumer)
    execute_process(COMMAND ${build_dir}/${program} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT status EQUAL 0 OR NOT output STREQUAL "")
      message(FATAL_ERROR "the ${program} ended with ${status} and said: ${output}")
    endif()
  endforeach()
endfunction()
