# SPDX-License-Identifier: Apache-2.0
# switchyard_add_backend(ID SOURCES...): a backend plugin, built the same way inside and outside this tree.
#
# Makes the target `switchyard_backend_<ID>` and the file `switchyard_<ID>.so`. It links switchyard::plugin_api and
# nothing else of switchyard, and the C library's mathematics, which C compilers do not add by themselves; the one
# symbol that it exports is switchyard_plugin_negotiate (plugin.map).
function(switchyard_add_backend id)
  set(target switchyard_backend_${id})
  set(map ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plugin.map)
  add_library(${target} MODULE ${ARGN})
  target_link_libraries(${target} PRIVATE switchyard::plugin_api m)
  target_link_options(${target} PRIVATE -Wl,--version-script=${map} -Wl,--no-undefined)
  set_target_properties(${target} PROPERTIES
    PREFIX "" OUTPUT_NAME switchyard_${id} SUFFIX .so LINK_DEPENDS ${map}
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()
