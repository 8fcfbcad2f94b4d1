// Extensions of the tile shaders; included first.
#extension GL_GOOGLE_include_directive : require
#ifdef COOPERATIVE
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_NV_cooperative_matrix : require
#endif
