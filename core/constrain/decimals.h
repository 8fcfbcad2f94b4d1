// SPDX-License-Identifier: Apache-2.0
// Sets of JSON numbers as expressions over the texts that they are written as. A number has many: 5, 5.0, 5.00. These
// sets have all of them without an exponent, so that union, intersection and complement of the sets are those of the
// numbers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/base/status.h"
#include "core/constrain/expressions.h"

namespace switchyard::constrain {

struct Decimal {
  bool negative = false;
  std::string whole = "0";  // without leading zeros
  std::string fraction;     // without trailing ones
  bool zero() const { return whole == "0" && fraction.empty(); }
};

Decimal decimal(const nlohmann::json& number);

class Decimals {
 public:
  explicit Decimals(Expressions& expressions);
  Expr all() const { return all_; }
  Expr all_with_exponents();
  Expr integers() const { return integers_; }
  Expr equal(const Decimal& d);
  Expr at_most(const Decimal& d, bool inclusive);
  Expr at_least(const Decimal& d, bool inclusive) { return x_.minus(all_, at_most(d, !inclusive)); }
  // Errors: unsupported, for a divisor of more than seven digits or that is not above 0.
  Result<Expr> multiples(const Decimal& d);

 private:
  Expr digits(char low, char high);
  Expr less_whole(const std::string& whole);
  Expr fraction_below(const std::string& fraction, bool inclusive);
  Expr below(const Decimal& d, bool inclusive);

  Expressions& x_;
  Expr digit_, whole_, fraction_, zeros_, positive_, integers_, all_;
};

}  // namespace switchyard::constrain
