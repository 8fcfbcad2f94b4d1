# SPDX-License-Identifier: Apache-2.0
"""The loss that the project quotes: windows of 512 tokens, each predicting its tokens 2 to 512, and their mean."""
import torch
import torch.nn.functional as F

import transformers_model

WINDOW = 512


def windows(ids, count):
    """The first `count` whole windows; they do not overlap, and the last partial one is dropped."""
    return [ids[i : i + WINDOW] for i in range(0, len(ids) - WINDOW, WINDOW)][:count]


def mean_nll(logits_of, ids, count):
    """Mean negative log-likelihood in nats, and each window's own; `logits_of(window)` gives [tokens, vocab]."""
    means = []
    for window in windows(ids, count):
        logits = torch.as_tensor(logits_of(window), dtype=torch.float64)
        means.append(F.cross_entropy(logits[:-1], torch.tensor(window[1:])).item())
    return sum(means) / len(means), means


def transformers_nll(model, ids, count):
    return mean_nll(lambda window: transformers_model.prefill_logits(model, window), ids, count)
