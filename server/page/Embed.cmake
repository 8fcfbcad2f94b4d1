# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a C++ file, with the page of FOLDER: index.html with the other files in the places of its marks; and
# with openapi.json.
file(READ ${FOLDER}/index.html html)
foreach(part style.css markdown.js chats.js page.js)
  file(READ ${FOLDER}/${part} text)
  string(REPLACE "@${part}@" "${text}" html "${html}")
endforeach()
file(WRITE ${OUTPUT} "#include \"server/page/page.h\"\n\nnamespace switchyard::server {\n\nstd::string page_html() {\n  return R\"page(")
file(APPEND ${OUTPUT} "${html}")
file(READ ${FOLDER}/openapi.json openapi)
file(APPEND ${OUTPUT} ")page\";\n}\n\nstd::string openapi_json() {\n  return R\"page(")
file(APPEND ${OUTPUT} "${openapi}")
file(APPEND ${OUTPUT} ")page\";\n}\n\n}  // namespace switchyard::server\n")
