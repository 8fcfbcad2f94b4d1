// SPDX-License-Identifier: Apache-2.0
// How --help shows the options.
#pragma once

#include <memory>

namespace CLI {
class FormatterBase;
}  // namespace CLI

namespace switchyard::cli {

// "--tokens UINT=128 [1 - 16777216]", and descriptions in lines of at most 120 columns.
std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace switchyard::cli
