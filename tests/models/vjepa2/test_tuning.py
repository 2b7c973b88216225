import time

import torch

from mstar_plan.models.vjepa2.tuning import candidate_rows, fastest

CPU = torch.device("cpu")


def test_chunks_of_more_tokens_than_caches_hold_are_not_tried():
    assert candidate_rows(66, "cpu", 256) == [1, 2, 4, 8, 16, 32]
    assert candidate_rows(66, "cpu", 5) == [1, 2, 4]
    assert candidate_rows(9999, "cpu", 256) == [1]
    assert candidate_rows(258, "cuda", 256)[-1] == 128


def test_the_least_time_a_row_wins():
    seconds = {1: 0.004, 2: 0.002, 4: 0.012}
    assert fastest([1, 2, 4], lambda rows: time.sleep(seconds[rows]), CPU) == 2
