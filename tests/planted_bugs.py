"""Plant known bugs one at a time in a copy of the sources, and see that the test which is there for each one fails.

Every bug breaks a guarantee without breaking the program: it runs, and its results look like results. Call it as
``python tests/planted_bugs.py [WORD ...]``; words choose the bugs whose names hold one of them. It ends with code 1 if
a bug survives, if its place in the sources is gone, or if its test fails without it.
"""

import compileall
import importlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALL_PASS, SOME_FAIL = 0, 1  # codes of pytest; others mean that no test ran to its end
LOADED = ("hypothesis", "opacus", "pandas", "pytest", "scipy.stats", "sklearn.datasets", "torch._dynamo")
"""What tests import beside the package and what takes long: once, before a process is forked for each bug."""


@dataclass(frozen=True)
class Bug:
    """One edit of the sources that a test must notice.

    Attributes:
        name: What is wrong with the planted version.
        file: Below ``src/leakbound``.
        old: Text that stands there exactly once.
        new: Text that takes its place.
        test: Identifier of the test, or of the tests of one name, that must fail.
    """

    name: str
    file: str
    old: str
    new: str
    test: str


BUGS = (
    # -- noise: how much, how often, for whom ------------------------------------------------------------------------
    Bug(
        "noise of a channel halved",
        "channels/sampling.py",
        "deviations = np.sqrt(channel.variances)",
        "deviations = 0.5 * np.sqrt(channel.variances)",
        "tests/channels/test_sampling.py::test_noise_has_the_covariance_of_its_channel",
    ),
    Bug(
        "variance of a channel taken for the standard deviation",
        "channels/sampling.py",
        "deviations = np.sqrt(channel.variances)",
        "deviations = channel.variances",
        "tests/channels/test_sampling.py::test_noise_has_the_covariance_of_its_channel",
    ),
    Bug(
        "labels kept more often than stated",
        "channels/randomized_response.py",
        "uniform[0] < self.keep",
        "uniform[0] < 1.05 * self.keep",
        "tests/channels/test_randomized_response.py::test_flips_are_as_frequent_as_stated",
    ),
    Bug(
        "responses of different strength share their draws",
        "engine/identity.py",
        'f"{name} {number} {label}"',
        'f"{number} {label}"',
        "tests/engine/test_label_response.py::test_another_run_draws_the_same_under_the_same_key",
    ),
    Bug(
        "nats of labels that pass a response left out",
        "engine/identity.py",
        "return self.response.capacity",
        "return 0.0",
        "tests/engine/test_label_response.py::test_its_nats_are_added_to_those_of_the_records",
    ),
    Bug(
        "noise of private training halved",
        "training/per_sample.py",
        "noise_multiplier=self._client.level,\n            max_grad_norm",
        "noise_multiplier=0.5 * self._client.level,\n            max_grad_norm",
        "tests/training/test_per_sample.py::"
        "test_noise_has_the_standard_deviation_of_multiplier_times_bound_over_batch[dpsgd]",
    ),
    Bug(
        "noise of an attacked upload halved",
        "training/client_steps.py",
        "std = self.level * self.defense.max_grad_norm",
        "std = 0.5 * self.level * self.defense.max_grad_norm",
        "tests/training/test_client_steps.py::test_dp_noise_is_that_of_the_sum_divided_by_the_batch_size[1]",
    ),
    Bug(
        "noise calibrated to twice the capacity",
        "channels/calibration.py",
        "target = capacity * AIM",
        "target = 2.0 * capacity * AIM",
        "tests/channels/test_calibration.py::test_noise_scale_meets_the_capacity_from_below_over_twelve_decades",
    ),
    Bug(
        "noise reused: the same block at every step",
        "training/batches.py",
        "        self._drawn = self._draw(*size)",
        "        self._first = getattr(self, '_first', self._before)\n"
        "        for source, before in zip(self._sources, self._first, strict=True):\n"
        "            source.restore(before)\n"
        "        self._drawn = self._draw(*size)",
        "tests/training/test_inputs.py::test_fresh_inputs_have_new_noise_at_each_use_and_in_each_slot[natural]",
    ),
    Bug(
        "noise reused: the same rows of a block in every batch",
        "training/batches.py",
        "return self._drawn[self._used - 1]",
        "return self._drawn[0]",
        "tests/training/test_inputs.py::test_fresh_inputs_have_new_noise_at_each_use_and_in_each_slot[white]",
    ),
    Bug(
        "generator repeated: private training draws the same noise at each step",
        "training/per_sample.py",
        "        drawn = self._batches.draw().to(",
        "        self._noise.generator.manual_seed(0)\n        drawn = self._batches.draw().to(",
        "tests/training/test_noise_of_its_own.py::test_two_steps_of_private_training_have_independent_noise",
    ),
    Bug(
        "generator repeated: all replicas have the noise of the first",
        "training/sgd.py",
        "sources = [request.noise(slot.replica) for slot in slots]",
        "sources = [request.noise(0) for slot in slots]",
        "tests/training/test_noise_of_its_own.py::test_two_replicas_of_a_channel_have_independent_noise",
    ),
    Bug(
        "generator repeated: the clients of a federation have the same noise",
        "papers/pmidp/averaging.py",
        'self._source("noise", client, following)',
        'self._source("noise", following)',
        "tests/papers/pmidp/test_averaging.py::test_noise_of_clients_and_rounds_is_independent",
    ),
    Bug(
        "generator repeated: the rounds of a federation have the same noise",
        "papers/pmidp/averaging.py",
        'self._source("noise", client, following)',
        'self._source("noise", client)',
        "tests/papers/pmidp/test_averaging.py::test_noise_of_clients_and_rounds_is_independent",
    ),
    Bug(
        "frozen noise drawn anew at each use",
        "training/client_steps.py",
        "kind = FrozenInputs if self.keeps_copies else FreshInputs",
        "kind = FreshInputs",
        "tests/training/test_noise_of_its_own.py::test_frozen_noise_of_training_is_one_copy",
    ),
    Bug(
        "directions without computed variance left without noise",
        "channels/shapes.py",
        "_FLOOR = 1e-12",
        "_FLOOR = 0.0",
        "tests/channels/test_shapes.py::test_no_direction_is_left_without_noise_at_deficient_rank",
    ),
    Bug(
        "directions that pass nothing not masked by the dither",
        "channels/sampling.py",
        "        if self._dither:\n",
        "        if False:\n",
        "tests/channels/test_sampling.py::test_directions_without_noise_tell_no_record_from_another",
    ),
    Bug(
        "masks of neighbours not applied at one end",
        "papers/wang2020/protocol.py",
        "signs[np.arange(len(first)), second] = -1.0",
        "signs[np.arange(len(first)), second] = 0.0",
        "tests/papers/wang2020/test_protocol.py::test_masks_keep_the_mean_at_every_step",
    ),
    Bug(
        "masks of neighbours never sent",
        "papers/wang2020/protocol.py",
        "return _once(masks @ signs)",
        "return _once(0.0 * masks @ signs)",
        "tests/papers/wang2020/test_privacy.py::"
        "test_the_first_messages_under_masks_have_the_covariance_that_the_level_is_computed_from",
    ),
    # -- where noise comes from --------------------------------------------------------------------------------------
    Bug(
        "secure noise falls back to the seed",
        "randomness/sources.py",
        '        SecureNoise(device)\n        if origin == "secure"\n        else SeededNoise(',
        "        SeededNoise(",
        "tests/training/test_secure_training.py::test_equal_requests_start_alike_and_end_apart[natural]",
    ),
    Bug(
        "secure noise of private training left to Opacus' generator",
        "training/per_sample.py",
        "if self._secure is None:",
        "if True:",
        "tests/training/test_secure_training.py::test_secure_noise_of_dp_is_on_the_grid_of_the_sum",
    ),
    Bug(
        "secure noise added without a grid",
        "randomness/grid.py",
        "after.copy_(to_grid(torch.add(before.double(), noise, alpha=std), spacing))",
        "after.copy_(torch.add(before.double(), noise, alpha=std))",
        "tests/training/test_client_steps.py::test_secure_upload_is_on_the_grid_of_its_noise_and_follows_no_seed",
    ),
    Bug(
        "misspelled origin of noise taken for seeds",
        "randomness/sources.py",
        "    check_origin(origin)\n    return",
        "    return",
        "tests/randomness/test_sources.py::test_misspelled_origin_never_gives_seeded_noise",
    ),
    # -- sensitivity -------------------------------------------------------------------------------------------------
    Bug(
        "clipping after the sum",
        "training/client_steps.py",
        "weights = self.record_weights(torch.stack(squares).sum(0).sqrt())",
        "weights = self.record_weights(torch.stack(squares).sum().sqrt()[None]).expand(len(squares[0]))",
        "tests/training/test_noise_of_its_own.py::test_each_record_of_an_upload_is_clipped_on_its_own[defense0]",
    ),
    Bug(
        "clipping after the sum in training",
        "training/weighted_sums.py",
        "weights = weigh(_norms(parts))",
        "weights = weigh(_norms(parts).square().sum().sqrt()[None]).expand(len(labels))",
        "tests/training/test_per_sample.py::test_clipping_equals_microbatches_of_one_record[0.3-dppsac]",
    ),
    Bug(
        "clean images in front of DP in place of what the channel released",
        "training/client_steps.py",
        "return Inputs(images, rows, self._sampler(images, sources[0], many_draws=True).apply, sources)",
        "return Inputs(images, rows)",
        "tests/training/test_per_sample.py::"
        "test_gradients_behind_a_channel_are_clipped_after_its_noise_and_get_that_of_dp_on_their_sum",
    ),
    Bug(
        "records that fill up a batch counted in a stack",
        "training/per_sample.py",
        "return self._weigh(norms.flatten()).view(norms.shape) * drawn",
        "return self._weigh(norms.flatten()).view(norms.shape)",
        "tests/training/test_private_stack.py::test_stack_of_private_training_equals_one_by_one[dpsgd]",
    ),
    Bug(
        "bias left out of the norm that a record is clipped by",
        "training/weighted_sums.py",
        "(inputs.square().sum(1) + (factor.layer.bias is not None))",
        "inputs.square().sum(1)",
        "tests/training/test_per_sample.py::test_clipped_sums_equal_those_of_opacus[lenet-0.3]",
    ),
    Bug(
        "clipping by layer taken for clipping as a whole",
        "training/client_steps.py",
        "weighted = tensor * weights.view",
        "weighted = tensor * self.record_weights(tensor.flatten(1).norm(dim=1)).view",
        "tests/training/test_noise_of_its_own.py::test_each_record_of_an_upload_is_clipped_on_its_own[defense0]",
    ),
    Bug(
        "contribution of a record up to 2 S, noise for S",
        "training/client_steps.py",
        "return self.defense.max_grad_norm / (norms + r / (norms + r))",
        "return 2.0 * self.defense.max_grad_norm / (norms + r / (norms + r))",
        "tests/training/test_per_sample.py::test_psac_sensitivity_is_at_most_the_bound",
    ),
    Bug(
        "width of uniform noise forgotten: a for 2 a",
        "papers/wang2020/privacy.py",
        "widest = 2.0 * bound * decay**time",
        "widest = bound * decay**time",
        "tests/papers/wang2020/test_privacy.py::test_joint_level_of_scheme_3_matches_simulated_likelihood_ratios",
    ),
    Bug(
        "sum divided by the records drawn, not by those expected",
        "training/per_sample.py",
        "        self._optimizer.step()\n\n    def state",
        "        self._optimizer.expected_batch_size = max(1, len(indices))\n"
        "        self._optimizer.step()\n\n    def state",
        "tests/training/test_per_sample.py::test_clipping_equals_microbatches_of_one_record[0.3-dpsgd]",
    ),
    Bug(
        "noise divided by the batch twice",
        "training/client_steps.py",
        "return [perturbed(total, std, source) / size for total in sums]",
        "return [perturbed(total / size, std / size**2, source) for total in sums]",
        "tests/training/test_client_steps.py::test_dp_noise_is_that_of_the_sum_divided_by_the_batch_size[4]",
    ),
    # -- accounting --------------------------------------------------------------------------------------------------
    Bug(
        "shuffled batches with the ε of Poisson sampling",
        "training/per_sample.py",
        "return PoissonBatches(self._population, self._rate, source)",
        "from leakbound.training.batches import ShuffledBatches\n"
        '        generator = self._request.generator(replica, "batches")\n'
        "        return ShuffledBatches(self._population, self._request.batch_size, generator)",
        "tests/training/test_noise_of_its_own.py::test_batches_of_private_training_vary_as_poisson_samples",
    ),
    Bug(
        "ε stated for an event of shuffled batches",
        "accounting/dp.py",
        'if event.sampling != "poisson":',
        "if False:",
        "tests/accounting/test_dp.py::test_epsilon_refuses_events_it_was_not_derived_for",
    ),
    Bug(
        "accountant told half of the sample rate",
        "training/per_sample.py",
        "get_optimizer_hook_fn(sample_rate=self._rate)",
        "get_optimizer_hook_fn(sample_rate=0.5 * self._rate)",
        "tests/training/test_per_sample.py::test_epsilon_equals_the_accountant_called_on_its_own[rdp-RDPAccountant]",
    ),
    Bug(
        "fresh noise accounted as frozen",
        "accounting/leakage.py",
        'return uses if self.noise == "fresh" else min(uses, 1)',
        "return min(uses, 1)",
        "tests/accounting/test_leakage.py::test_joint_leakage_is_the_information_in_all_noisy_copies",
    ),
    Bug(
        "uses of the luckiest record stated for all",
        "training/sgd.py",
        "uses=int(self._batches.uses(slot).max())",
        "uses=int(self._batches.uses(slot).min())",
        "tests/training/test_loop.py::test_event_counts_the_uses_of_a_record",
    ),
    Bug(
        "one replica's bound stated for all of them",
        "accounting/statement.py",
        "dp_bounds(group, delta, accountant, *behind) for",
        "dp_bounds(group[:1], delta, accountant, *behind) for",
        "tests/accounting/test_leakage.py::test_three_replicas_of_dpsgd_have_the_epsilon_of_three_times_the_steps",
    ),
    Bug(
        "capacity in bits where nats are stated",
        "accounting/gaussian.py",
        "terms = np.log1p(ratio[finite]).sum()",
        "terms = np.log2(1.0 + ratio[finite]).sum()",
        "tests/accounting/test_gaussian.py::test_capacity_is_half_the_log_determinant",
    ),
    Bug(
        "moments not centred",
        "channels/covariance.py",
        "        records -= centre\n        shift = centre - mean\n",
        "        shift = centre - mean\n",
        "tests/channels/test_covariance.py::test_moments_do_not_depend_on_how_records_are_chunked",
    ),
    Bug(
        "channel of another dataset",
        "jobs/table.py",
        'spectrum = f"{run.dataset}/{defense.channel.family}"',
        'spectrum = f"{sorted(self.config.datasets)[0]}/{defense.channel.family}"',
        "tests/jobs/test_job_list.py::test_every_channel_is_made_from_the_dataset_of_its_run",
    ),
    # -- what passes a channel against what it was calibrated to -------------------------------------------------------
    Bug(
        "covariance estimated on other pixels than those that pass",
        "cli/steps/covariance.py",
        "population_moments(prepared.aux.images,",
        "population_moments((prepared.aux.images + 1) / 2,",
        "tests/cli/test_cli.py::test_moments_are_those_of_the_pixels_that_pass_the_channel",
    ),
    Bug(
        "moments of members estimated on other pixels than those that pass",
        "cli/steps/covariance.py",
        "exact_moments(prepared.pool.images,",
        "exact_moments((prepared.pool.images + 1) / 2,",
        "tests/cli/test_cli.py::test_moments_are_those_of_the_pixels_that_pass_the_channel",
    ),
    Bug(
        "own moments compared for one use where several are planned",
        "engine/engine.py",
        "OwnMoments(calibration, target.fresh_uses(frozen), accept_capacity)",
        "OwnMoments(calibration, 1, accept_capacity)",
        "tests/engine/test_own_moments.py::"
        "test_private_records_on_a_larger_scale_are_refused_before_the_first_release[2.0]",
    ),
    Bug(
        "chance explains every excess",
        "channels/observed.py",
        "quantile * spread * math.sqrt(",
        "100 * quantile * spread * math.sqrt(",
        "tests/engine/test_own_moments.py::test_few_records_on_another_scale_are_refused",
    ),
    Bug(
        "directions without public variance compared with a thousand times the noise",
        "channels/observed.py",
        "_HIDDEN = 1e-3",
        "_HIDDEN = 1e3",
        "tests/engine/test_own_moments.py::test_flags_that_no_public_record_has_are_not_shown_in_clear",
    ),
    Bug(
        "records rounded to float32 before the mean is off",
        "engine/release.py",
        "(clean - self._mean).to(self._type)",
        "(clean.float() - self._mean).to(self._type)",
        "tests/engine/test_own_moments.py::test_whole_numbers_beyond_float32_are_released_from_their_own_value",
    ),
    Bug(
        "clones of a transformer count for themselves",
        "engine/transformer.py",
        "other._ledger = self._counted()",
        "other._ledger = Ledger(Identity.made(double=False))",
        "tests/engine/test_own_moments.py::test_refits_copies_and_clones_add_up",
    ),
    Bug(
        "held-out records not asked whether noise by others protects them",
        "channels/covariance.py",
        "while high < 1.0 and excess(high) > 0:",
        "while False:",
        "tests/channels/test_covariance.py::"
        "test_noise_by_pictures_with_rare_pixels_tells_no_more_of_all_pictures_than_stated[white]",
    ),
    Bug(
        "precision of several uses in proportion to the gain",
        "channels/composition.py",
        "uses * gain**2",
        "uses * gain",
        "tests/channels/test_composed_capacity.py::test_matrix_form_is_the_scalar_form_for_equal_shapes",
    ),
    # -- the engine around a training loop -----------------------------------------------------------------------------
    Bug(
        "noise of an engine the same at each use",
        "engine/release.py",
        "(0, self._calls, use, record)",
        "(0, self._calls, 0, record)",
        "tests/engine/test_engine.py::test_fresh_noise_differs_from_use_to_use_and_frozen_noise_does_not",
    ),
    Bug(
        "noise of an engine the same for all records",
        "engine/release.py",
        "(0, self._calls, use, record)",
        "(0, self._calls, use, 0)",
        "tests/engine/test_engine.py::test_noise_has_the_covariance_of_the_channel",
    ),
    Bug(
        "a target for all uses that one use meets",
        "engine/targets.py",
        "return self.uses or 1",
        "return 1",
        "tests/engine/test_targets.py::test_all_uses_together_tell_the_leakage_that_was_asked_for",
    ),
    Bug(
        "one use more than planned",
        "engine/targets.py",
        "        seen = held.fresh_uses + held.parallel",
        "        held = replace(held, fresh_uses=held.fresh_uses - 1)\n        seen = held.fresh_uses + held.parallel",
        "tests/engine/test_engine.py::test_an_exhausted_budget_refuses_before_it_releases_or_counts[0]",
    ),
    Bug(
        "a record twice in a batch counted once",
        "engine/counting.py",
        "if self.plan.once else before + batch.counts",
        "if self.plan.once else before + (batch.counts > 0)",
        "tests/engine/test_engine.py::test_a_record_twice_in_a_batch_is_used_twice_with_other_noise",
    ),
    Bug(
        "frozen copies drawn anew",
        "engine/uses.py",
        "if int(rows[place]) not in self.copies",
        "if place >= 0",
        "tests/engine/test_engine.py::test_fresh_noise_differs_from_use_to_use_and_frozen_noise_does_not",
    ),
    Bug(
        "fresh uses accounted for as frozen ones",
        "engine/accountant.py",
        'looks = counts if noise == "fresh" else np.minimum(counts, 1)',
        "looks = np.minimum(counts, 1)",
        "tests/engine/test_accountant.py::test_a_mixture_tells_what_its_added_precisions_tell_and_never_more_than_the_sum",
    ),
    Bug(
        "augmentation before the channel",
        "engine/uses.py",
        "(self.rows[records] != rows) | ((before >= 0) & (before != rows))",
        "self.rows[records] != rows",
        "tests/engine/test_refusals.py::test_augmentation_that_hides_at_first_is_caught_at_the_second_use",
    ),
    Bug(
        "a state that keeps the last collection alone",
        "engine/counting.py",
        "for name, records in self.collections.items()},",
        "for name, records in list(self.collections.items())[-1:]},",
        "tests/engine/test_hands.py::test_a_state_holds_every_collection_and_those_that_wait_for_their_data",
    ),
    Bug(
        "a state that forgets collections that wait for their data",
        "engine/counting.py",
        "for name, records in self.collections.items()},",
        "for name, records in self.collections.items() if records.base},",
        "tests/engine/test_hands.py::test_a_state_holds_every_collection_and_those_that_wait_for_their_data",
    ),
    Bug(
        "private records taken for public ones",
        "engine/engine.py",
        "if not self._public.isdisjoint(contents):",
        "if not contents:",
        "tests/engine/test_hands.py::test_private_records_that_were_taken_for_public_ones_are_refused_whatever_holds_them",
    ),
    Bug(
        "digests of records without their key",
        "engine/identity.py",
        "digest_size=WORD, key=self.key).digest()",
        "digest_size=WORD).digest()",
        "tests/engine/test_hands.py::test_a_state_alone_recognises_no_record",
    ),
    Bug(
        "uses on disk that are not kept",
        "engine/ledger.py",
        'connection.execute("COMMIT")',
        'connection.execute("ROLLBACK")',
        "tests/engine/test_ledger_file.py::test_uses_add_up_over_runs_and_without_a_ledger_the_engine_says_that_they_do",
    ),
    Bug(
        "looks through other channels forgotten",
        "accounting/leakage.py",
        "sum(others, 0.0)",
        "0.0",
        "tests/engine/test_ledger_file.py::test_nats_of_other_channels_count_toward_the_plan",
    ),
    Bug(
        "uses of a stronger channel along the same axes forgotten",
        "accounting/leakage.py",
        "totals[place] += (worths",
        "totals[place] += 0 * (worths",
        "tests/engine/test_bounds.py::test_a_plan_is_one_of_nats_over_all_strengths",
    ),
    Bug(
        "a record that stands twice in one call is one use",
        "engine/transformer.py",
        "counts = Counter(rows)",
        "counts = Counter(set(rows))",
        "tests/engine/test_bounds.py::test_a_record_that_stands_twice_in_one_call_is_two_uses",
    ),
    Bug(
        "labels of other runs forgotten",
        "engine/ledger.py",
        "held.labels[places[record]] = nats",
        "held.labels[places[record]] = min(nats, 0.2)",
        "tests/engine/test_bounds.py::test_labels_that_were_released_as_they_are_stay_released_behind_a_response",
    ),
    Bug(
        "accepted nats that no line states",
        "accounting/leakage.py",
        "if self.accepted is None or not uses:",
        "if self.accepted != 0 or not uses:",
        "tests/engine/test_bounds.py::test_an_accepted_capacity_is_the_bound_in_every_line",
    ),
    Bug(
        "every copy of an engine releases",
        "engine/counting.py",
        "alone = not held or self.file is not None",
        "alone = True",
        "tests/engine/test_bounds.py::test_one_of_many_copies_releases_and_with_a_ledger_all_do",
    ),
    Bug(
        "a forked process that counts for itself",
        "engine/counting.py",
        "if process() != self._process:",
        "if not self._process:",
        "tests/engine/test_hands.py::test_a_forked_process_is_refused_or_counts_in_the_ledger[True]",
    ),
    Bug(
        "ranks that count apart",
        "engine/release.py",
        "dist.get_world_size() > 1",
        "dist.get_world_size() > 99",
        "tests/engine/test_ranks.py::test_ranks_count_together_and_stop_at_the_same_batch",
    ),
    # -- what comes once only -----------------------------------------------------------------------------------------
    Bug(
        "long secure draws begin again with their first key",
        "randomness/sources.py",
        "                stream = Keystream()\n",
        '                first = first if start else __import__("os").urandom(32)\n'
        "                stream = Keystream(first)\n",
        "tests/randomness/test_sources.py::test_numbers_beyond_those_of_one_key_repeat_none_of_its_chunks",
    ),
)


def _tested(source: Path, tests: Sequence[str], kept: Path) -> int:
    """Code of pytest on some tests with the sources in a folder, in this process, which has not imported them yet."""
    os.environ["PYTHONPATH"] = str(source)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(source))
    os.chdir(ROOT)
    with kept.open("w") as out, redirect_stdout(out), redirect_stderr(out):
        import pytest

        options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=-m ''", "--no-header"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of plugins, which have been loaded above
        return int(pytest.main([*options, *tests]))


def _apart(source: Path, tests: Sequence[str], kept: Path) -> int:
    """The same in a process of its own, forked from this one, which has loaded what takes long."""
    with get_context("fork").Pool(1) as pool:
        return pool.apply(_tested, (source, list(tests), kept))


def _outcome(bug: Bug, folder: Path) -> str:
    """Empty if the test fails with the bug; else what is the matter."""
    path = folder / "src/leakbound" / bug.file
    text = path.read_text()
    if text.count(bug.old) != 1:
        return f"its place in {bug.file} is gone: the text stands there {text.count(bug.old)} times"
    written = path.stat().st_mtime_ns
    path.write_text(text.replace(bug.old, bug.new))
    os.utime(path, ns=(0, 0))  # no time that the bytecode of the sources could have been made for
    code = _apart(folder / "src", [bug.test], folder / "log")
    path.write_text(text)
    os.utime(path, ns=(written, written))
    if code == SOME_FAIL:
        return ""
    return "SURVIVED" if code == ALL_PASS else f"no test ran (code {code}): {(folder / 'log').read_text()[-300:]}"


def main(words: Sequence[str]) -> int:
    """Plant the chosen bugs and print a table; the code is 1 if one of them survives or cannot be planted."""
    for module in LOADED:
        importlib.import_module(module)
    chosen = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    failed, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(folder / "src", quiet=1)
        if _apart(folder / "src", sorted({bug.test for bug in chosen}), folder / "log") != ALL_PASS:
            print(f"tests fail without any bug:\n{(folder / 'log').read_text()[-3000:]}")
            return 1
        for bug in chosen:
            outcome = _outcome(bug, folder)
            failed += bool(outcome)
            print(f"{bug.name:76} {outcome or 'caught':8} {bug.test.partition('::')[2]}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} bugs caught in {time.monotonic() - began:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
