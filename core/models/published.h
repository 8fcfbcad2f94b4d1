// SPDX-License-Identifier: Apache-2.0
// Published configurations: the fields of config.json that decide a model's program.
#pragma once

#include <string_view>
#include <vector>

namespace switchyard {

// The text of its config.json; "" for a name that is not here.
std::string_view published_config(std::string_view name);
std::vector<std::string_view> published_configs();

}  // namespace switchyard
