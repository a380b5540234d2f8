# Commands shared by the package tests. A command that fails ends the test with its output.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
endfunction()

# Runs the consumer's two programs, which must print nothing and exit with 0.
function(run_programs folder)
  foreach(program consumer plain_consumer)
    execute_process(COMMAND ${folder}/${program} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT status EQUAL 0 OR NOT output STREQUAL "")
      message(FATAL_ERROR "the ${program} ended with ${status} and said: ${output}")
    endif()
  endforeach()
endfunction()

# Returns the command that configures the consumer in `build_dir`, with any further arguments.
function(configure_command result build_dir)
  file(REMOVE_RECURSE ${build_dir})
  set(${result} ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/consumer -B ${build_dir} -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CXX_COMPILER} "-DCMAKE_CXX_COMPILER_LAUNCHER=${CXX_LAUNCHER}" ${ARGN} PARENT_SCOPE)
endfunction()

# Configures, builds and runs the consumer.
function(run_consumer build_dir)
  configure_command(command ${build_dir} ${ARGN})
  run(${command})
  run(${CMAKE_COMMAND} --build ${build_dir} --parallel 2)
  run_programs(${build_dir})
endfunction()

# Configures the consumer, which must fail with `message`: a regular expression that is matched after undoing
# CMake's line wrapping.
function(expect_configure_error build_dir message)
  configure_command(command ${build_dir} ${ARGN})
  execute_process(COMMAND ${command} RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE errors)
  string(REGEX REPLACE "[ \n]+" " " errors "${errors}")
  if(status EQUAL 0 OR NOT errors MATCHES "${message}")
    message(FATAL_ERROR "the configuration ended with ${status}, without saying '${message}':\n${errors}")
  endif()
endfunction()
