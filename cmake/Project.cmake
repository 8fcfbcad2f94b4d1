# What every target of ours shares. `switchyard::build` carries the language level, warnings and sanitizers.
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
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(SWITCHYARD_BACKEND_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${SWITCHYARD_BACKEND_DIR})

set(SWITCHYARD_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them: address,undefined or thread")

find_package(Threads REQUIRED)
add_library(switchyard_build INTERFACE)
add_library(switchyard::build ALIAS switchyard_build)
target_link_libraries(switchyard_build INTERFACE Threads::Threads)
target_compile_options(switchyard_build INTERFACE -Wall -Wextra -Werror -Wshadow -Wvla -ffp-contract=off)
if(SWITCHYARD_SANITIZE)
  target_compile_options(switchyard_build INTERFACE -fsanitize=${SWITCHYARD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(switchyard_build INTERFACE -fsanitize=${SWITCHYARD_SANITIZE})
endif()

# switchyard_backend(ID SOURCES...): a plugin that sees the plugin API and nothing else of ours.
function(switchyard_backend id)
  add_library(switchyard_backend_${id} MODULE ${ARGN})
  target_link_libraries(switchyard_backend_${id} PRIVATE switchyard::plugin_api switchyard::build)
  target_link_options(switchyard_backend_${id} PRIVATE
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/plugins_api/plugin.map -Wl,--no-undefined)
  set_target_properties(switchyard_backend_${id} PROPERTIES
    PREFIX "" OUTPUT_NAME switchyard_${id}
    LIBRARY_OUTPUT_DIRECTORY ${SWITCHYARD_BACKEND_OUTPUT_DIRECTORY})
  install(TARGETS switchyard_backend_${id} LIBRARY DESTINATION ${SWITCHYARD_BACKEND_DIR})
endfunction()
