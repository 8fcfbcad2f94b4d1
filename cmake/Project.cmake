# SPDX-License-Identifier: Apache-2.0
# Settings that all our targets share. `switchyard::build` carries the language level, warnings and sanitizers.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The build tree has the shape of an installation, so that `$ORIGIN/../lib/switchyard/backends` works in both.
set(SWITCHYARD_BACKEND_DIR lib/switchyard/backends)
set(SWITCHYARD_PROBE_DIR lib/switchyard)
set(SWITCHYARD_CMAKE_DIR lib/cmake/switchyard)
set(SWITCHYARD_SDK_LIBRARY_DIR lib/switchyard)
set(SWITCHYARD_DATA_DIR share/switchyard)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(SWITCHYARD_BACKEND_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${SWITCHYARD_BACKEND_DIR})
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/${SWITCHYARD_DATA_DIR})
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/models ${CMAKE_BINARY_DIR}/${SWITCHYARD_DATA_DIR}/models SYMBOLIC)

# Headers of the standard library, JSON and GoogleTest cost more than what our files add to them, so files of a target are
# compiled some at a time. Names of such a group must differ, those of unnamed namespaces too; SKIP_UNITY_BUILD_INCLUSION
# excludes a file from groups.
option(SWITCHYARD_GROUPS "Compile files in groups: a whole build takes a third of the time, a small change longer" OFF)
set(CMAKE_UNITY_BUILD ${SWITCHYARD_GROUPS})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 20)

set(SWITCHYARD_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them: address,undefined or thread")

find_package(Threads REQUIRED)
add_library(switchyard_build INTERFACE)
add_library(switchyard::build ALIAS switchyard_build)
target_link_libraries(switchyard_build INTERFACE Threads::Threads)
set(warnings -Wall -Wextra -Wshadow -Wvla)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  list(APPEND warnings -Werror)  # the compiler that CI runs; others only warn
  if(SWITCHYARD_GROUPS)
    # A group takes a gigabyte; collecting garbage before that is a tenth of the compiler's time.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
  endif()
endif()
target_compile_options(switchyard_build INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:${warnings} -ffp-contract=off>
  "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler=-Wall,-Wextra,-ffp-contract=off -Werror=all-warnings>")
if(SWITCHYARD_SANITIZE)
  # Instrumented code takes two and a half times as long to optimise. Backends and the conformance kit, which do most of the
  # computing, are optimised a little; for the fuzzers, which run for long, all code is.
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:$<IF:$<BOOL:${SWITCHYARD_FUZZ}>,-O1,-O0>;-g1>")
  set(SWITCHYARD_SANITIZED_OPTIONS "$<$<COMPILE_LANGUAGE:C,CXX>:-O1>")
  target_compile_options(switchyard_build INTERFACE
    -fsanitize=${SWITCHYARD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(switchyard_build INTERFACE -fsanitize=${SWITCHYARD_SANITIZE})
endif()
if(SWITCHYARD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    message(FATAL_ERROR "SWITCHYARD_FUZZ needs clang, which has libFuzzer: cmake --preset fuzz")
  endif()
  target_compile_options(switchyard_build INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(SWITCHYARD_PORTABLE)
  target_link_options(switchyard_build INTERFACE -static-libstdc++ -static-libgcc)
endif()

# For code that decides, reads and prints, and computes little: optimising templates of JSON, CLI11 and GoogleTest takes a
# third of the time to compile them. Backends are optimised in full.
if(NOT SWITCHYARD_SANITIZE)
  set(SWITCHYARD_LIGHT_OPTIONS "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:-O1>")
endif()

# switchyard_computes(FILES...): files of a target with these options that go through every weight of a model or every
# byte of a text, and so are optimised in full. Each is compiled by itself.
function(switchyard_computes)
  set_property(SOURCE ${ARGN} TARGET_DIRECTORY switchyard_core APPEND
    PROPERTY COMPILE_OPTIONS $<$<NOT:$<CONFIG:Debug>>:-O3>)
endfunction()

# Headers that the build writes, for tools that read single files.
add_custom_target(switchyard_headers)

# The program with the backends of the processor: what a first run needs. Other backends and the tests come with `all`.
add_custom_target(switchyard_app)

# switchyard_backend(ID SOURCES...): a backend of this tree. It is built by the function that third parties use.
include(${PROJECT_SOURCE_DIR}/plugins_api/SwitchyardBackend.cmake)
function(switchyard_backend id)
  switchyard_add_backend(${id} ${ARGN})
  target_link_libraries(switchyard_backend_${id} PRIVATE switchyard::build)
  if(SWITCHYARD_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    # Only the program has the runtime of clang's sanitizers; the plugin finds it there when it is loaded.
    target_link_options(switchyard_backend_${id} PRIVATE -Wl,-z,undefs)
  endif()
  set_target_properties(switchyard_backend_${id} PROPERTIES UNITY_BUILD OFF  # every operation has the same names
    LIBRARY_OUTPUT_DIRECTORY ${SWITCHYARD_BACKEND_OUTPUT_DIRECTORY})
  install(TARGETS switchyard_backend_${id} LIBRARY DESTINATION ${SWITCHYARD_BACKEND_DIR} COMPONENT app OPTIONAL)
endfunction()
