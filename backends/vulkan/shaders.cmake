# SPDX-License-Identifier: Apache-2.0
# vulkan_shaders(TARGET FILES...): compiles NAME.comp to SPIR-V and makes NAME.comp.h, an array of words NAME_comp that a
# source of the target includes. NAME.comp:VARIANT:DEF[,DEF] compiles it with -DDEF, as NAME.VARIANT.h, array NAME_VARIANT.
function(vulkan_shaders target)
  set(folder ${CMAKE_BINARY_DIR}/shaders)  # where no checker takes them for headers of ours
  file(MAKE_DIRECTORY ${folder})
  foreach(item ${ARGN})
    string(REPLACE ":" ";" parts ${item})
    list(GET parts 0 file)
    list(LENGTH parts count)
    string(REPLACE ".comp" "" name ${file})
    set(variant comp)
    set(defines)
    if(count GREATER 2)
      list(GET parts 1 variant)
      list(GET parts 2 defines)
      string(REPLACE "," ";-D" defines "-D${defines}")
    endif()
    set(header ${folder}/${name}.${variant}.h)
    add_custom_command(OUTPUT ${header}
      COMMAND ${SWITCHYARD_GLSLANG} --quiet -V --target-env vulkan1.2 ${defines} -I${CMAKE_CURRENT_SOURCE_DIR}
              --depfile ${header}.d --vn ${name}_${variant} -o ${header} ${CMAKE_CURRENT_SOURCE_DIR}/${file}
      DEPENDS ${file} DEPFILE ${header}.d COMMENT "Compiling shader ${name}.${variant}" VERBATIM)
    list(APPEND headers ${header})
  endforeach()
  target_sources(${target} PRIVATE ${headers})
  add_custom_target(${target}_shaders DEPENDS ${headers})
  add_dependencies(switchyard_headers ${target}_shaders)
  target_include_directories(${target} PRIVATE ${folder})
endfunction()
