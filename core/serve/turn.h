// SPDX-License-Identifier: Apache-2.0
// A turn: the next reading of a TextThread, and the answer to it, through a service.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/generate/text_thread.h"
#include "core/serve/service.h"

namespace switchyard {

// `session` is that of the thread. Errors: those of Service::submit; nothing has been done then.
Result<std::shared_ptr<Ticket>> begin_turn(Service& service, const std::shared_ptr<Session>& session,
                                           const TextThread& thread, const TextThread::Reading& reading,
                                           const TextOptions& options);

// Once the ticket's last event has come. `drawn`, `shown`: the tokens that were taken from it, and their text. Errors:
// cancelled, when the service has stopped.
Status end_turn(Service& service, TextThread& thread, const TextThread::Reading& reading, std::vector<int32_t> drawn,
                const std::string& shown, const Finish& finish);

}  // namespace switchyard
