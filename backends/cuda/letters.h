// Small copies between steps, carried by the first kernel of the list behind them.
//
// A copy of its own holds the stream up by some microseconds, however small it is, and a step has two: its block and
// what the last step drew. So a small write or read that only has to keep its place in the stream is put in a letter,
// in page-locked memory, which the first kernel of the next list opens. What comes to the stream otherwise, or waits
// for such a read, has the letter opened before.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "switchyard/plugin.h"

namespace gpu {

constexpr uint32_t kLetterBytes = 4096, kReplyBytes = 256;

struct alignas(16) Letter {
  void* to;            // written from `payload`, after the read
  const void* from;    // read to `reply`
  uint64_t* timeline;  // then becomes `value`
  uint64_t value;
  uint32_t bytes, reply_bytes;  // 0: nothing is written, or read
  uint64_t padding;
  char payload[kLetterBytes], reply[kReplyBytes];
};

// The letters of a device. Its mutex is held in all calls but open and close.
class Letters {
 public:
  swy_status open(swy_error* error);
  void close();

  // False: the copy is none that a letter takes, and everything in front of it has been sent.
  bool takes_write(swy_device& d, void* to, const void* from, uint64_t bytes, swy_status* status, swy_error* error);
  bool takes_read(swy_device& d, void* to, const void* from, uint64_t bytes, const swy_submit* submit,
                  swy_status* status, swy_error* error);

  // Has what is pending done now.
  swy_status send(swy_device& d, swy_error* error);
  // The same, if somebody who waits for `timeline` to reach `value` waits for that.
  swy_status send_for(swy_device& d, const swy_timeline* timeline, uint64_t value, swy_error* error);

  // Records the kernel that opens a letter; a list that has it is about to be submitted.
  swy_status record(cudaStream_t capture, swy_error* error) const;
  swy_status take(swy_device& d, swy_error* error);

 private:
  swy_status clear(swy_device& d, swy_error* error);
  Letter& next() const { return letters_[sent_ % kCount]; }

  static constexpr uint64_t kCount = 32;
  Letter* letters_ = nullptr;            // [kCount]
  volatile uint64_t* opened_ = nullptr;  // how many; the device writes it
  uint64_t* turn_ = nullptr;             // the same in the device's memory
  uint64_t sent_ = 0;
  bool clear_ = false;                     // the next letter is made ready
  const swy_timeline* awaited_ = nullptr;  // of the read in it
};

}  // namespace gpu
