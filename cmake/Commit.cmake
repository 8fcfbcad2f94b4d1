# SPDX-License-Identifier: Apache-2.0
# cmake -D SOURCE=DIR -D OUTPUT=FILE -P Commit.cmake: writes a header that defines SWITCHYARD_COMMIT, the commit that the
# source is at, with -dirty where files were changed; "" outside a repository. The file is left alone when it says so.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define SWITCHYARD_COMMIT \"@commit@\"\n" @ONLY)
