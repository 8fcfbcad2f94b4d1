// SPDX-License-Identifier: Apache-2.0
#include "core/serve/turn.h"

namespace switchyard {

Result<std::shared_ptr<Ticket>> begin_turn(Service& service, const std::shared_ptr<Session>& session,
                                           const TextThread& thread, const TextThread::Reading& reading,
                                           const TextOptions& options) {
  GenerationRequest request;
  request.prompt = reading.fresh;
  request.text = options;
  request.session = session;
  if (!reading.anew) request.history = thread.seen();
  Admission admission = service.submit(std::move(request));
  if (!admission.ok()) return admission.rejection.status;
  return std::move(admission.ticket);
}

Status end_turn(Service& service, TextThread& thread, const TextThread::Reading& reading, std::vector<int32_t> drawn,
                const std::string& shown, const Finish& finish) {
  if (finish.reason == "end" && !drawn.empty()) drawn.pop_back();  // the end is no part of the text
  return service.on_loop([&](Model&) -> Status {
    thread.end(reading, std::move(drawn), shown);
    return {};
  });
}

}  // namespace switchyard
