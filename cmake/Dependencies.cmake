# SPDX-License-Identifier: Apache-2.0
# Third-party libraries, each from a package manager (packages.txt). Targets of ours use the deps:: names given here, so
# that one option decides how all of them are linked.
find_package(PkgConfig REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(EDIT REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(MD REQUIRED IMPORTED_TARGET libmd)
find_package(CURL 7.62 REQUIRED)
find_package(Boost 1.81 REQUIRED)  # headers alone: Asio and Beast
find_package(FlatBuffers 2.0 CONFIG REQUIRED)
find_program(FLATC flatc REQUIRED)

# dependency(NAME ITEMS...): deps::NAME links the items.
function(dependency name)
  add_library(deps_${name} INTERFACE)
  add_library(deps::${name} ALIAS deps_${name})
  target_link_libraries(deps_${name} INTERFACE ${ARGN})
endfunction()

# static_dependency(NAME LIBRARY [DEFINITIONS...]): deps::NAME links the archive of LIBRARY.
function(static_dependency name library)
  find_library(SWITCHYARD_STATIC_${name} lib${library}.a REQUIRED)
  dependency(${name} ${SWITCHYARD_STATIC_${name}})
  target_compile_definitions(deps_${name} INTERFACE ${ARGN})
endfunction()

dependency(json nlohmann_json::nlohmann_json)
dependency(cli11 CLI11::CLI11)
dependency(boost Boost::headers)
if(SWITCHYARD_SANITIZE STREQUAL thread)
  # The sanitizer does not know fences. Asio has them besides its locks.
  target_compile_definitions(deps_boost INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()
dependency(flatbuffers flatbuffers::flatbuffers)  # an archive everywhere
dependency(curl_headers)  # the library is opened when something is fetched (core/hub/curl.h)
target_include_directories(deps_curl_headers SYSTEM INTERFACE ${CURL_INCLUDE_DIRS})
if(SWITCHYARD_PORTABLE)
  # Debian has no archives of fmt and spdlog; both can be used as headers alone.
  dependency(fmt fmt::fmt-header-only)
  dependency(spdlog fmt::fmt-header-only)
  target_compile_definitions(deps_spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
  static_dependency(pcre2 pcre2-8 PCRE2_STATIC)
  static_dependency(utf8proc utf8proc UTF8PROC_STATIC)
  static_dependency(xxhash xxhash)
  static_dependency(md md)
  static_dependency(bsd bsd)  # libedit's own, in the order in which they need each other
  static_dependency(tinfo tinfo)
  static_dependency(edit edit)
  target_link_libraries(deps_edit INTERFACE deps::tinfo deps::bsd deps::md)
else()
  dependency(fmt fmt::fmt)
  dependency(spdlog spdlog::spdlog)
  dependency(pcre2 PkgConfig::PCRE2)
  dependency(utf8proc PkgConfig::UTF8PROC)
  dependency(xxhash PkgConfig::XXHASH)
  dependency(edit PkgConfig::EDIT)
  dependency(md PkgConfig::MD)
endif()
