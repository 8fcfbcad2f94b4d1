# SPDX-License-Identifier: Apache-2.0
# The files that `cmake --install` copies, and the package that lets a third party build a backend:
#   find_package(switchyard) -> switchyard::plugin_api (headers alone, no dependencies), switchyard::row_sampling (a
#   static library, for backends that sample in host memory) and switchyard_add_backend(), and for programs that
#   generate text switchyard::engine (switchyard/engine.h).
include(CMakePackageConfigHelpers)

# The component `app` is what it takes to run models, without what it takes to build backends: `./dev install`.
install(TARGETS switchyard RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT app)
install(FILES models/demo.swy models/README.md DESTINATION ${SWITCHYARD_DATA_DIR}/models COMPONENT app OPTIONAL)
install(FILES tests/data/demo/val16.txt DESTINATION ${SWITCHYARD_DATA_DIR}/models COMPONENT app RENAME prompt.txt)
install(FILES LICENSE DESTINATION ${SWITCHYARD_DATA_DIR} COMPONENT app)
# The pages that a backend is written from, and those that they refer to: links between them stay whole.
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md CONTRIBUTING.md SECURITY.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
foreach(folder man bash-completion zsh fish)  # cli/CMakeLists.txt makes these files
  install(DIRECTORY ${CMAKE_BINARY_DIR}/share/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT app)
endforeach()

install(DIRECTORY plugins_api/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY plugins_api/template DESTINATION ${SWITCHYARD_DATA_DIR} OPTIONAL)
install(FILES plugins_api/SwitchyardBackend.cmake plugins_api/plugin.map DESTINATION ${SWITCHYARD_CMAKE_DIR})
set_target_properties(switchyard_plugin_api PROPERTIES EXPORT_NAME plugin_api)
set_target_properties(switchyard_row_sampling PROPERTIES EXPORT_NAME row_sampling)
install(TARGETS switchyard_plugin_api switchyard_row_sampling switchyard_engine EXPORT switchyardTargets
  LIBRARY DESTINATION lib ARCHIVE DESTINATION ${SWITCHYARD_SDK_LIBRARY_DIR})
install(DIRECTORY core/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY docs/embed DESTINATION ${SWITCHYARD_DATA_DIR})
install(EXPORT switchyardTargets NAMESPACE switchyard:: DESTINATION ${SWITCHYARD_CMAKE_DIR})

configure_package_config_file(cmake/switchyardConfig.cmake.in ${CMAKE_BINARY_DIR}/switchyardConfig.cmake
  INSTALL_DESTINATION ${SWITCHYARD_CMAKE_DIR} PATH_VARS SWITCHYARD_BACKEND_DIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/switchyardConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/switchyardConfig.cmake ${CMAKE_BINARY_DIR}/switchyardConfigVersion.cmake
  DESTINATION ${SWITCHYARD_CMAKE_DIR})
