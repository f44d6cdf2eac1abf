"""Plant known bugs one at a time in a copy of the sources, and see that the test which is there for each one fails.

Every bug breaks a guarantee without breaking the program: it runs, and its results look like results. Call it as
``python tests/planted_bugs.py [--passed] [--third] [WORD ...]``; words choose the bugs whose names hold one of them. It
ends with code 1 if a bug survives, if its place in the sources is gone, or if its test fails without it. ``--passed``
leaves out the run without bugs, where the whole suite runs all those tests as well. ``--third`` plants every third bug,
beginning with one that the sources determine, so that other sources have others.
"""

import compileall
import importlib
import os
import re
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from py_compile import PycInvalidationMode

ROOT = Path(__file__).resolve().parents[1]
ALL_PASS, SOME_FAIL = 0, 1  # codes of pytest; others mean that no test ran to its end
LOADED = (
    *("hypothesis", "jinja2", "networkx", "opacus", "pandas", "pydantic", "pytest", "scipy.stats", "sklearn.compose"),
    *("sklearn.covariance", "sklearn.datasets", "torch._dynamo", "yaml"),
)
"""What tests import beside the package and what takes long: once, before a process is forked for each bug."""


BUGS = {
    # -- verdicts and pictures of kept rows ------------------------------------------------------------------------
    "a verdict beside an interval that holds 0": (
        "[(blocks.effects, flips), (blocks.effects, student)]",
        "[(blocks.effects, flips)]",
        "test_no_verdict_contradicts_its_interval",
    ),
    "two blocks decide that an effect is negligible": (
        'return smallest_p(blocks) / (1 if rule == "beyond" else 2) < alpha',
        "return blocks > 1",
        "test_fewer_blocks_than_sign_flips_need_decide_nothing_not_even_that_an_effect_is_negligible",
    ),
    "a control on more blocks than its cells": (
        'blocks.isin(common_blocks(table)) | (rows["replica"] < 0)',
        'blocks.isin(blocks) | (rows["replica"] < 0)',
        "test_cells_and_their_control_stand_on_the_same_blocks",
    ),
    "the direction of a claim left out of its effect": (
        "np.sign(claim.claimed * claim.effect)",
        "np.sign(claim.effect)",
        "test_an_effect_has_unit_sign_and_direction",
    ),
    "datasets called different without a correction": (
        "adjusted = holm([p_value for p_value, _ in results])",
        "adjusted = [p_value for p_value, _ in results]",
        "test_settings_are_corrected_together_before_they_are_called_different",
    ),
    "leakage charged at the arm's own slope": (
        "slope.mean(axis=0) * (leakage[0] - leakage[1])",
        "slope[0] * (leakage[0] - leakage[1])",
        "test_leakage_that_the_judging_replica_sees_is_charged_at_the_mean_slope_of_both_fronts",
    ),
    "Page's ranks counted by the shortest table": (
        "levels = max(table.shape[1] for table in shared)",
        "levels = min(table.shape[1] for table in shared)",
        "test_page_ranks_the_values_of_the_longest_of_several_tables",
    ),
    "half of an interval printed as the whole": (
        "half=(interval.high - interval.low) / 2",
        "half=interval.high - interval.low",
        "test_tables_have_means_with_intervals_and_what_the_paper_prints",
    ),
    # -- noise: how much, how often, for whom ------------------------------------------------------------------------
    "noise of a channel halved": (
        "deviations = np.sqrt(channel.variances)",
        "deviations = 0.5 * np.sqrt(channel.variances)",
        "test_noise_has_the_covariance_of_its_channel",
    ),
    "labels kept more often than stated": (
        "uniform[0] < self.keep",
        "uniform[0] < 1.05 * self.keep",
        "test_flips_are_as_frequent_as_stated",
    ),
    "responses of different strength share their draws": (
        'f"{name} {number} {self',
        'f"{number} {self',
        "test_another_run_draws_the_same_under_the_same_key",
    ),
    "nats of labels that pass a response left out": (
        "return self.response.capacity",
        "return 0.0",
        "test_its_nats_are_added_to_those_of_the_records",
    ),
    "labels of records that another channel alone has used left out": (
        "used |= self._added > 0",
        "used |= self._added < 0",
        "test_nats_of_channels_that_are_not_at_hand_are_added_with_the_labels_of_their_records",
    ),
    "noise of private training halved": (
        "noise_multiplier=self._client.level,\n            max_grad_norm",
        "noise_multiplier=0.5 * self._client.level,\n            max_grad_norm",
        "test_noise_has_the_standard_deviation_of_multiplier_times_bound_over_batch[dpsgd]",
    ),
    "noise of an attacked upload halved": (
        "std = self.level * self.defense.max_grad_norm",
        "std = 0.5 * self.level * self.defense.max_grad_norm",
        "test_dp_noise_is_that_of_the_sum_divided_by_the_batch_size[1]",
    ),
    "noise calibrated to twice the capacity": (
        "target = capacity * AIM",
        "target = 2.0 * capacity * AIM",
        "test_noise_scale_meets_the_capacity_from_below_over_twelve_decades",
    ),
    "noise reused: the same block at every step": (
        "        self._draws_ahead = self._draw(*size)",
        "        self._first = getattr(self, '_first', self._before)\n"
        "        for source, before in zip(self._sources, self._first, strict=True):\n"
        "            source.restore(before)\n"
        "        self._draws_ahead = self._draw(*size)",
        "test_fresh_inputs_have_new_noise_at_each_use_and_in_each_slot[natural]",
    ),
    "noise reused: the same rows of a block in every batch": (
        "return self._draws_ahead[self._used - 1]",
        "return self._draws_ahead[0]",
        "test_fresh_inputs_have_new_noise_at_each_use_and_in_each_slot[white]",
    ),
    "generator repeated: private training draws the same noise at each step": (
        "        indices = self._batches.draw().to(",
        "        self._noise.generator.manual_seed(0)\n        indices = self._batches.draw().to(",
        "test_two_steps_of_private_training_have_independent_noise",
    ),
    "generator repeated: all replicas have the noise of the first": (
        "sources = [request.noise(slot.replica) for slot in slots]",
        "sources = [request.noise(0) for slot in slots]",
        "test_two_replicas_of_a_channel_have_independent_noise",
    ),
    "generator repeated: the clients of a federation have the same noise": (
        'self._source("noise", client, following)',
        'self._source("noise", following)',
        "test_noise_of_clients_and_rounds_is_independent",
    ),
    "generator repeated: the rounds of a federation have the same noise": (
        'self._source("noise", client, following)',
        'self._source("noise", client)',
        "test_noise_of_clients_and_rounds_is_independent",
    ),
    "frozen noise drawn anew at each use": (
        "kind = FrozenInputs if self.keeps_copies else FreshInputs",
        "kind = FreshInputs",
        "test_frozen_noise_of_training_is_one_copy",
    ),
    "directions without computed variance left without noise": (
        "_FLOOR = 1e-12",
        "_FLOOR = 0.0",
        "test_no_direction_is_left_without_noise_at_deficient_rank",
    ),
    "directions that pass nothing not masked by the dither": (
        "        if self._dither:\n",
        "        if False:\n",
        "test_directions_without_noise_tell_no_record_from_another",
    ),
    "masks of neighbours not applied at one end": (
        "signs[np.arange(len(first)), second] = -1.0",
        "signs[np.arange(len(first)), second] = 0.0",
        "test_masks_keep_the_mean_at_every_step",
    ),
    "masks of neighbours never sent": (
        "return _once(masks @ signs)",
        "return _once(0.0 * masks @ signs)",
        "test_the_first_messages_under_masks_have_the_covariance_that_the_level_is_computed_from",
    ),
    # -- where noise comes from --------------------------------------------------------------------------------------
    "secure noise falls back to the seed": (
        '        SecureNoise(device)\n        if origin == "secure"\n        else SeededNoise(',
        "        SeededNoise(",
        "test_equal_requests_start_alike_and_end_apart[natural]",
    ),
    "secure noise of private training left to Opacus' generator": (
        "if self._secure is None:",
        "if True:",
        "test_secure_noise_of_dp_is_on_the_grid_of_the_sum",
    ),
    "secure noise added without a grid": (
        "after.copy_(to_grid(torch.add(before.double(), noise, alpha=std), spacing))",
        "after.copy_(torch.add(before.double(), noise, alpha=std))",
        "test_secure_upload_is_on_the_grid_of_its_noise_and_follows_no_seed",
    ),
    "misspelled origin of noise taken for seeds": (
        "    check_origin(origin)\n    return",
        "    return",
        "test_misspelled_origin_never_gives_seeded_noise",
    ),
    # -- sensitivity -------------------------------------------------------------------------------------------------
    "a difference from public uploads that is not shortened": (
        "return (self.longest / norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp(max=1.0)",
        "return torch.ones_like(norms)",
        "test_an_upload_reveals_no_more_than_its_nats_whatever_the_records_are[1000.0]",
    ),
    "participations after the first epoch left out of the sensitivity": (
        "left = steps - separation * np.arange(participations(steps, separation))",
        "left = steps - separation * np.arange(1)",
        "test_sensitivity_is_that_of_jax_privacy[4-8-40-7.44140625]",
    ),
    "correlated noise that forgets the steps before": (
        "self._past.appendleft(noise)",
        "self._past.clear()",
        "test_what_a_training_adds_has_the_covariance_of_the_inverse",
    ),
    "nats of a client told as those of one record": (
        '        return f"one {self.unit}"\n',
        '        return "one record"\n',
        "test_statement_is_about_all_records_of_the_client_and_not_about_one",
    ),
    "sampled clients that take part twice as often as their budgets allow": (
        "np.minimum(1.0, mi_budgets / _gaussian_leak(",
        "np.minimum(1.0, 2.0 * mi_budgets / _gaussian_leak(",
        "test_sampled_clients_reveal_their_budgets_on_average_and_somebody_is_always_there",
    ),
    "clipping after the sum": (
        "weights = self.record_weights(torch.stack(squares).sum(0).sqrt())",
        "weights = self.record_weights(torch.stack(squares).sum().sqrt()[None]).expand(len(squares[0]))",
        "test_each_record_of_an_upload_is_clipped_on_its_own[defense0]",
    ),
    "clipping after the sum in training": (
        "weights = weigh(_norms(parts))",
        "weights = weigh(_norms(parts).square().sum().sqrt()[None]).expand(len(labels))",
        "test_clipping_equals_microbatches_of_one_record[0.3-dppsac]",
    ),
    "clean images in front of DP in place of what the channel released": (
        "return Inputs(images, rows, self._sampler(images, sources[0], many_draws=True).apply, sources)",
        "return Inputs(images, rows)",
        "test_gradients_behind_a_channel_are_clipped_after_its_noise_and_get_that_of_dp_on_their_sum",
    ),
    "records that fill up a batch counted in a stack": (
        "return self._weigh(norms.flatten()).view(norms.shape) * records",
        "return self._weigh(norms.flatten()).view(norms.shape)",
        "test_stack_of_private_training_equals_one_by_one[dpsgd]",
    ),
    "bias left out of the norm that a record is clipped by": (
        "(inputs.square().sum(1) + (factor.layer.bias is not None))",
        "inputs.square().sum(1)",
        "test_clipped_sums_equal_those_of_opacus[lenet-0.3]",
    ),
    "clipping by layer taken for clipping as a whole": (
        "weighted = tensor * weights.view",
        "weighted = tensor * self.record_weights(tensor.flatten(1).norm(dim=1)).view",
        "test_each_record_of_an_upload_is_clipped_on_its_own[defense0]",
    ),
    "contribution of a record up to 2 S, noise for S": (
        "return self.defense.max_grad_norm / (norms + r / (norms + r))",
        "return 2.0 * self.defense.max_grad_norm / (norms + r / (norms + r))",
        "test_psac_sensitivity_is_at_most_the_bound",
    ),
    "width of uniform noise forgotten: a for 2 a": (
        "widest = 2.0 * bound * decay**time",
        "widest = bound * decay**time",
        "test_joint_level_of_scheme_3_matches_simulated_likelihood_ratios",
    ),
    "sum divided by the records drawn, not by those expected": (
        "self._optimizer.zero_grad(set_to_none=True)\n        for images",
        "self._optimizer.expected_batch_size = max(1, len(indices))\n"
        "        self._optimizer.zero_grad(set_to_none=True)\n        for images",
        "test_clipping_equals_microbatches_of_one_record[0.3-dpsgd]",
    ),
    "noise divided by the batch twice": (
        "return [perturbed(total, std, source) / size for total in sums]",
        "return [perturbed(total / size, std / size**2, source) for total in sums]",
        "test_dp_noise_is_that_of_the_sum_divided_by_the_batch_size[4]",
    ),
    # -- accounting --------------------------------------------------------------------------------------------------
    "shuffled batches with the ε of Poisson sampling": (
        "return PoissonBatches(self._population, self._rate, source)",
        "from leakbound_lab.training.batches import ShuffledBatches\n"
        '        generator = self._request.generator(replica, "batches")\n'
        "        return ShuffledBatches(self._population, self._request.batch_size, generator)",
        "test_batches_of_private_training_vary_as_poisson_samples",
    ),
    "ε stated for an event of shuffled batches": (
        'if not correlated and event.sampling != "poisson":',
        "if False:",
        "test_epsilon_refuses_events_it_was_not_derived_for",
    ),
    "accountant told half of the sample rate": (
        "mechanism = (self._client.level, self._rate, self._steps, ",
        "mechanism = (self._client.level, 0.5 * self._rate, self._steps, ",
        "test_epsilon_equals_the_accountant_called_on_its_own[rdp-RDPAccountant]",
    ),
    "fresh noise accounted as frozen": (
        'return uses if self.noise == "fresh" else min(uses, self.records)',
        "return min(uses, self.records)",
        "test_joint_leakage_is_the_information_in_all_noisy_copies",
    ),
    "uses of the luckiest record stated for all": (
        "uses=most_uses(self._batches.uses(slot), self._units[slot])",
        "uses=int(self._batches.uses(slot).min())",
        "test_event_counts_the_uses_of_a_record",
    ),
    "a weight of the one-run audit off by one": (
        "right += count / (guesses - count)",
        "right += count / (guesses - count + 1)",
        "test_limit_of_a_gaussian_mechanism_is_where_the_published_algorithm_ceases_to_reject[100-50-45]",
    ),
    "canaries scored by the deviation of the noise in place of its variance": (
        "/ (2.0 * level**2)",
        "/ (2.0 * level)",
        "test_likelihood_ratios_of_records_that_were_not_there_average_one[2.0-0.5]",
    ),
    "an MLflow run with a learning rate that was tried and not chosen": (
        'for rate in provenance.get("rates", ()) if rate["chosen"]}',
        'for rate in provenance.get("rates", ())}',
        "test_each_replica_has_the_learning_rate_that_was_chosen_for_it",
    ),
    "shrinking undone by its weight alone": (
        "moments.shrinkage / kept *",
        "moments.shrinkage *",
        "test_variances_that_shrinking_made_smaller_come_back_and_others_stay[0.3]",
    ),
    "noise of several uses over the gain and not its square": (
        "/ gain[live] ** 2",
        "/ gain[live]",
        "test_best_linear_error_of_several_uses_behind_a_gain_has_the_noise_over_its_square",
    ),
    "shifts of normalisations left out of a norm": (
        "scales.square().sum(1) + shifts.square().sum(1)",
        "scales.square().sum(1)",
        "test_norms_by_which_records_are_weighted_hold_the_shifts_of_normalisations",
    ),
    "uses of copies counted by their places": (
        "np.bincount(units, counts)).max()",
        "counts).max()",
        "test_uses_of_copies_add_up_and_frozen_copies_are_one",
    ),
    "a frozen copy of each copy of a record": (
        "if len(first) < len(record):",
        "if len(first) > len(record):",
        "test_members_with_equal_rows_share_their_frozen_copy",
    ),
    "a response to the label of each copy": (
        "labels = labels[dataset.copies]",
        "labels = labels[:]",
        "test_copies_have_one_response",
    ),
    "epsilon of one copy stated for all of a record": (
        "return _history_epsilon(history, delta, accountant, rows=rows)",
        "return _history_epsilon(history, delta, accountant)",
        "test_epsilon_of_copies_lies_between_that_of_one_and_that_of_all_drawn_together",
    ),
    "a maximum for the sum over an owner's uses": (
        "(sum(repeated(k, mechanism.nats(1)) for mechanism",
        "(max(repeated(k, mechanism.nats(1)) for mechanism",
        "test_uses_of_an_owner_may_each_be_of_another_record",
    ),
    "labels that are counted left out of a statement": (
        "return self.values + self.labels",
        "return self.values",
        "test_uses_of_the_record_that_leaks_most_are_added_along_common_axes_and_nats_along_others",
    ),
    "a bound stated for noise from a seed": (
        "return self.derived and self.secure",
        "return self.derived",
        "test_seeded_noise_has_no_bound_in_any_form",
    ),
    "more candidates on a statement on paper than there are owners": (
        "data.owners or data.records // first.group",
        "data.owners or data.records",
        "test_candidates_are_no_more_than_there_are_owners",
    ),
    "risks of noise from a seed limited on paper": (
        "if not statement.bounded or",
        "if not statement.derived or",
        "test_without_nats_that_bound_the_release_no_risk_is_limited[seeded]",
    ),
    "all records of an owner taken for independent ones by an audit": (
        "rows = owners.one_of_each(names, seed)",
        "rows = np.arange(len(names))",
        "test_of_each_owner_one_record_is_audited_and_the_bound_is_about_all_of_them",
    ),
    "test pictures of owners whose others are trained on": (
        "test_rows = test_rows[~np.isin(raw.test_owners[test_rows], raw.owners)]",
        "test_rows = test_rows[~np.isin(raw.test_owners[test_rows], ())]",
        "test_all_pictures_of_an_owner_are_in_one_part_and_test_pictures_of_training_owners_are_left_out",
    ),
    "an owner's pictures in both files of a comparison": (
        "_draw_groups(join_groups(copies, number_owners(images.owners)[0]), generator)",
        "_draw_groups(copies, generator)",
        "test_owners_of_pictures_are_those_of_the_configuration[npz]",
    ),
    "owners of other rows where records are left out": (
        "column = column.iloc[rows]",
        "column = column.iloc[: len(rows)]",
        "test_a_table_that_is_written_again_keeps_its_owners[missing]",
    ),
    "an owner that a reader does not know ignored": (
        "if config.owner is not None and raw.owners is None:",
        "if config.owner is None and raw.owners is not None:",
        "test_an_owner_that_the_reader_does_not_know_is_refused",
    ),
    "what a bound does not cover left out of its sentence": (
        "        if self.uncovered:",
        "        if not self.uncovered:",
        "test_one_line_says_what_is_bounded_for_whom_with_which_labels_under_which_noise[uncovered]",
    ),
    "labels called covered although their responses come from a seed": (
        'ReleasedItem("labels", label_nats is not None and secure, why)',
        'ReleasedItem("labels", label_nats is not None, why)',
        "test_responses_from_a_seed_are_not_covered",
    ),
    "one replica's bound stated for all of them": (
        "state(_RELEASES[of], events=group, **facts) for",
        "state(_RELEASES[of], events=group[:1], **facts) for",
        "test_three_replicas_of_dpsgd_have_the_epsilon_of_three_times_the_steps",
    ),
    "capacity in bits where nats are stated": (
        "terms = np.log1p(ratio[finite]).sum()",
        "terms = np.log2(1.0 + ratio[finite]).sum()",
        "test_capacity_is_half_the_log_determinant",
    ),
    "moments not centred": (
        "        records -= centre\n        shift = centre - mean\n",
        "        shift = centre - mean\n",
        "test_moments_do_not_depend_on_how_records_are_chunked",
    ),
    "channel of another dataset": (
        'spectrum = f"{run.dataset}/{defense.channel.family}"',
        'spectrum = f"{sorted(self.config.datasets)[0]}/{defense.channel.family}"',
        "test_every_channel_is_made_from_the_dataset_of_its_run",
    ),
    # -- what passes a channel against what it was calibrated to -------------------------------------------------------
    "covariance estimated on other pixels than those that pass": (
        "population_moments(prepared.aux.images,",
        "population_moments((prepared.aux.images + 1) / 2,",
        "test_moments_are_those_of_the_pixels_that_pass_the_channel",
    ),
    "moments of members estimated on other pixels than those that pass": (
        "exact_moments(prepared.pool.images,",
        "exact_moments((prepared.pool.images + 1) / 2,",
        "test_moments_are_those_of_the_pixels_that_pass_the_channel",
    ),
    "labels of copies become texts": (
        "self.classes.take(pa.array(labels))",
        "pa.array([str(one) for one in self.classes.to_pylist()]).take(pa.array(labels))",
        "test_labels_leave_in_the_type_in_which_they_came[bool]",
    ),
    "public and private records compared after they are standardized": (
        "value_range=(0, WHITE) if private.pictures else (-math.inf, math.inf)",
        "value_range=(0, WHITE) if private.pictures else None",
        "test_records_are_compared_in_the_units_of_the_files",
    ),
    "records are compared in the order in which they come": (
        "for digest in sorted(rows)[: self._size]",
        "for digest in list(rows)[: self._size]",
        "test_which_records_are_compared_depends_on_their_values_alone",
    ),
    "own moments compared for one use where several are planned": (
        "OwnMoments(calibration, target.fresh_uses(frozen), accept_capacity)",
        "OwnMoments(calibration, 1, accept_capacity)",
        "test_private_records_on_a_larger_scale_are_refused_before_the_first_release[2.0]",
    ),
    "chance explains every excess": (
        "quantile * spread * math.sqrt(",
        "100 * quantile * spread * math.sqrt(",
        "test_few_records_on_another_scale_are_refused",
    ),
    "directions without public variance compared with a thousand times the noise": (
        "_HIDDEN = 1e-3",
        "_HIDDEN = 1e3",
        "test_flags_that_no_public_record_has_are_not_shown_in_clear",
    ),
    "records rounded to float32 before the mean is off": (
        "(clean - self._mean).to(self._type)",
        "(clean.float() - self._mean).to(self._type)",
        "test_whole_numbers_beyond_float32_are_released_from_their_own_value",
    ),
    "clones of a transformer count for themselves": (
        "other._ledger = self._common_ledger()",
        "other._ledger = Ledger()",
        "test_refits_copies_and_clones_add_up",
    ),
    "rows of an owner behind a transformer charged as rows of nobody": (
        "            owners=self._identity.owner_pairs(rows, owners),\n            cells=self",
        "            cells=self",
        "test_rows_of_an_owner_add_up_whatever_says_whose_they_are[array]",
    ),
    "labels behind a transformer not charged": (
        "self._charge_labels(labels, contents, y, owners)",
        "pass",
        "test_labels_that_a_classifier_sees_are_counted_or_said_not_to_be",
    ),
    "labels that other ranks release alone not counted": (
        "for offer in offers for pair in offer.labelled]",
        "for offer in offers[:1] for pair in offer.labelled]",
        "test_labels_that_are_released_alone_are_counted_of_all_ranks",
    ),
    "the number of an owner by its zeros in front": (
        'return text.lstrip("0") or "0" if text.isdecimal() else text',
        "return text",
        "test_an_owner_is_the_same_in_each_form_that_tables_hold_its_number_in",
    ),
    "auxiliary columns taken by their place": (
        "return auxiliary[names]",
        "return auxiliary",
        "test_auxiliary_columns_are_found_by_name",
    ),
    "a private row among the auxiliary ones": (
        "self._public.refuse_many(contents)\n        rows",
        "rows",
        "test_one_private_row_among_the_auxiliary_ones_is_refused",
    ),
    "rows of a fit forgotten in another process": (
        "rows = [ledger.records(), self._fitted, *",
        "rows = [ledger.records(), *",
        "test_a_fitted_channel_serves_new_rows_in_another_process_and_no_others",
    ),
    "moments of private rows in the clear in a pickle": (
        "sealed=self._planned[2])",
        "sealed=False)",
        "test_a_pickle_holds_no_row_and_no_moments_of_rows_in_the_clear",
    ),
    "an evaluation on clean records of the training": (
        "if recognised := engine.count_recognised(dataset):",
        "if recognised := 0:",
        "test_an_evaluation_on_clean_records_of_the_training_is_refused",
    ),
    "a training resumed without its counts": (
        "if engine.ledger is None and not any(uses.any() for uses in engine.uses.values()):",
        "if False:",
        "test_a_training_without_its_counts_is_not_resumed",
    ),
    "uses of Poisson samples taken for those of epochs": (
        "1.0 - float(bdtr(uses, epochs * len(sampler), rate)) ** records",
        "1.0 - float(bdtr(uses, epochs * len(sampler), rate))",
        "test_poisson_samples_say_how_many_uses_a_record_needs",
    ),
    "held-out records not asked whether noise by others protects them": (
        "while high < 1.0 and excess(high) > 0:",
        "while False:",
        "test_noise_by_pictures_with_rare_pixels_tells_no_more_of_all_pictures_than_stated[white]",
    ),
    "precision of several uses in proportion to the gain": (
        "uses * gain**2",
        "uses * gain",
        "test_matrix_form_is_the_scalar_form_for_equal_shapes",
    ),
    # -- the engine around a training loop -----------------------------------------------------------------------------
    "noise of an engine the same at each use": (
        "(0, self._calls, use, record)",
        "(0, self._calls, 0, record)",
        "test_fresh_noise_differs_from_use_to_use_and_frozen_noise_does_not",
    ),
    "noise of an engine the same for all records": (
        "(0, self._calls, use, record)",
        "(0, self._calls, use, 0)",
        "test_noise_has_the_covariance_of_the_channel",
    ),
    "a target for all uses that one use meets": (
        "return self.uses or 1",
        "return 1",
        "test_all_uses_together_tell_the_leakage_that_was_asked_for",
    ),
    "one use more than planned": (
        "        uses = exposure.fresh_uses + exposure.parallel",
        "        uses = exposure.fresh_uses + exposure.parallel - 1",
        "test_an_exhausted_budget_refuses_before_it_releases_or_counts[0]",
    ),
    "a record twice in a batch counted once": (
        "            return releases, none",
        "            return 1 + 0 * releases, none",
        "test_a_record_twice_in_a_batch_is_used_twice_with_other_noise",
    ),
    "frozen copies drawn anew": (
        "record not in self.copies for record",
        "True for record",
        "test_fresh_noise_differs_from_use_to_use_and_frozen_noise_does_not",
    ),
    "fresh uses accounted for as frozen ones": (
        'fresh_uses = counts if noise == "fresh" else np.minimum(counts, 1)',
        "fresh_uses = np.minimum(counts, 1)",
        "test_a_mixture_tells_what_its_added_precisions_tell_and_never_more_than_the_sum",
    ),
    "augmentation before the channel": (
        "(before != digests) & before.any(axis=1, keepdims=True)",
        "False",
        "test_augmentation_that_hides_at_first_is_caught_at_the_second_use",
    ),
    "a state that keeps the last collection alone": (
        "self._state_of(records) for name, records in self.collections.items()}",
        "self._state_of(records) for name, records in list(self.collections.items())[-1:]}",
        "test_a_state_holds_every_collection_and_those_that_wait_for_their_data",
    ),
    "a state that forgets collections that wait for their data": (
        "self._state_of(records) for name, records in self.collections.items()}",
        "self._state_of(records) for name, records in self.collections.items() if records.base}",
        "test_a_state_holds_every_collection_and_those_that_wait_for_their_data",
    ),
    "private records taken for public ones": (
        "self._public.refuse_one(contents, positions)",
        "pass",
        "test_private_records_that_were_taken_for_public_ones_are_refused_whatever_holds_them",
    ),
    "digests of records without their key": (
        "digest_size=WORD, key=self.key).digest()",
        "digest_size=WORD).digest()",
        "test_a_state_alone_recognises_no_record",
    ),
    "uses on disk that are not kept": (
        'connection.execute("COMMIT")',
        'connection.execute("ROLLBACK")',
        "test_uses_add_up_over_runs_and_without_a_ledger_the_engine_says_that_they_do",
    ),
    "uses through other channels forgotten": (
        "other_nats += max(0.0, nats - ",
        "other_nats += 0.0 * max(0.0, nats - ",
        "test_nats_of_other_channels_count_toward_the_plan",
    ),
    "uses along values forgotten where their covariance is not at hand": (
        "joint_information(ratios, 1) + sum(others, 0.0)",
        "joint_information(ratios, 1)",
        "test_nats_along_values_are_added_where_their_covariance_is_not_at_hand",
    ),
    "uses of a stronger channel along the same axes forgotten": (
        "totals[place] += (worths",
        "totals[place] += 0 * (worths",
        "test_a_plan_is_one_of_nats_over_all_strengths",
    ),
    "a record that stands twice in one call is one use": (
        "uses = np.ones_like(counts) if plan.once else counts",
        "uses = np.ones_like(counts)",
        "test_a_record_that_stands_twice_in_one_call_is_two_uses",
    ),
    "a total published twice": (
        "else part.steps + steps",
        "else part.steps + 2 * steps",
        "test_a_published_total_counts_the_steps_of_each_channel_once",
    ),
    "nats of other channels left out of an account": (
        "return together + self._each * later + self._added",
        "return together + self._each * later",
        "test_a_published_total_counts_the_steps_of_each_channel_once",
    ),
    "learned densities whose means cost no degree of freedom": (
        "covariance *= len(draws) / (len(draws) - 1)",
        "covariance *= 1.0",
        "test_learned_scores_are_densities_of_the_covariance_within_candidates[2-1]",
    ),
    "learned densities around the mean of all candidates": (
        "(draws - means).reshape(-1, draws.shape[2])",
        "(draws - draws.mean(axis=(0, 1))).reshape(-1, draws.shape[2])",
        "test_learned_scores_are_densities_of_the_covariance_within_candidates[2-3]",
    ),
    "the second label of equal rows forgotten by copies": (
        "relabelled := np.flatnonzero(labels != labels[alone][which])",
        "relabelled := np.flatnonzero(labels != labels)",
        "test_every_label_of_a_record_is_counted",
    ),
    "labels of two columns taken for one": (
        "label if self.names is None or label < 0 else self.names[label]",
        "label if self.names is None else label",
        "test_every_label_of_a_record_is_counted",
    ),
    "one label planned for equal rows with two": (
        "most = int(np.bincount(pairs[:, 0]).max())",
        "most = 1",
        "test_every_label_of_a_record_is_counted",
    ),
    "labels of other runs forgotten": (
        "exposure.labels[place] = labels.get(record, 0.0)",
        "exposure.labels[place] = min(labels.get(record, 0.0), 0.2)",
        "test_labels_that_were_released_as_they_are_stay_released_behind_a_response",
    ),
    "accepted nats that no line states": (
        "if self.accepted is None or not uses:",
        "if self.accepted != 0 or not uses:",
        "test_an_accepted_capacity_is_the_bound_in_every_line",
    ),
    "a copy of an engine that counts for itself": (
        "return Ledger.in_memory, (self.number, self.key, process())",
        "return Ledger, (self.key,)",
        "test_copies_of_an_engine_hold_no_count_of_their_own",
    ),
    "a forked process that counts for itself": (
        "if self.path is None and self._process != process():\n            raise GuaranteeError(",
        "if self._process == b'':\n            raise GuaranteeError(",
        "test_a_forked_process_is_refused_or_counts_in_the_ledger[True]",
    ),
    "a batch that is charged twice": (
        '    "INSERT INTO uses VALUES {values} ON CONFLICT DO UPDATE SET count = {count}, "',
        '    "INSERT INTO uses VALUES {values} ON CONFLICT DO UPDATE SET count = excluded.count + {count}, "',
        "test_uses_add_up_over_runs_and_without_a_ledger_the_engine_says_that_they_do",
    ),
    "the most of two charges for their sum": (
        'else "count + excluded.count"',
        'else "max(count, excluded.count)"',
        "test_uses_add_up_over_runs_and_without_a_ledger_the_engine_says_that_they_do",
    ),
    "a state that is added to the count that it is of": (
        "SET count = max(count, excluded.count), ",
        "SET count = count + excluded.count, ",
        "test_a_state_goes_on_beside_its_ledger_alone",
    ),
    "an owner's records counted one by one": (
        "siblings = self._siblings(connection, records) if owned else {}",
        "siblings: dict[int, list[list[int]]] = {}",
        "test_a_plan_is_one_for_all_records_of_an_owner",
    ),
    "the largest of an owner's records for all of them": (
        "totals = [sum(nats.get(sibling, 0.0) for sibling in others)",
        "totals = [max(nats.get(sibling, 0.0) for sibling in others)",
        "test_what_an_owner_s_records_reveal_together_is_told_whatever_they_have_in_common[fresh-0.0]",
    ),
    "uncounted labels that leave no row": (
        "UNCOUNTED, math.inf) for record, labels in unlimited if labels]",
        "UNCOUNTED, 0.0) for record, labels in unlimited if labels]",
        "test_labels_that_were_released_uncounted_leave_no_later_run_a_bound_on_labels",
    ),
    "near copies that a ledger forgets": (
        "near = self._note_cells(connection, cells)",
        "near = False",
        "test_near_copies_are_told_for_as_long_as_the_ledger_counts",
    ),
    "near copies that another calibration puts into other cells": (
        "                    if grid is not None:",
        "                    if grid is not None and width < 0:",
        "test_near_copies_are_told_in_another_run_of_a_ledger_and_by_another_calibration",
    ),
    "sums of private records in a ledger's file": (
        "                    elif hidden:",
        "                    elif hidden and grid:",
        "test_a_file_keeps_no_grid_of_the_records_that_it_counts",
    ),
    "near copies that a state leaves out": (
        '("celled", "cells", rows.cells)',
        '("celled", "cells", ())',
        "test_near_copies_are_told_after_a_state_is_loaded",
    ),
    "channels of one covariance whose nats are added": (
        "    return min(joint, sum((mechanism.nats(count)",
        "    return max(joint, sum((mechanism.nats(count)",
        "test_two_personalized_channels_go_on_as_long_as_their_determinant_allows",
    ),
    "a determinant that leaves out repeated uses": (
        "along += count * mechanism.precisions",
        "along += mechanism.precisions",
        "test_precisions_of_channels_of_one_covariance_add_up_exactly[memory-personalized-personalized-personalized]",
    ),
    "axes of another covariance taken for the same": (
        "return (self.moments.name if self.channel.shape in _PRINCIPAL else",
        "return (str(self.moments.dimension) if self.channel.shape in _PRINCIPAL else",
        "test_nats_of_channels_of_other_covariances_and_of_accepted_ones_are_added",
    ),
    "an owner of several records with the plan of one": (
        "else self.records * self.mechanism.nats(self.most)",
        "else self.mechanism.nats(self.most)",
        "test_a_plan_for_several_records_of_an_owner_is_sized_for_all_of_them[0.0-fresh]",
    ),
    "an ensemble that gives secure noise a seed": (
        'if getattr(self, "_of_secure", False):',
        'if getattr(self, "_of_securely", False):',
        "test_an_ensemble_gives_secure_noise_no_seed",
    ),
    "auxiliary rows that stand twice and so pass": (
        "for most in (_RARE, of_both.total()) if",
        "for most in () if",
        "test_auxiliary_rows_that_repeat_private_ones_are_refused_and_equal_rows_by_nature_are_not",
    ),
    "a ledger that is made where it is named": (
        "        if not place.exists():\n            raise GuaranteeError(",
        "        if not place.exists():\n            return cls.create(place)\n            raise GuaranteeError(",
        "test_a_ledger_is_made_by_an_act_and_says_what_it_counts",
    ),
    "a seed that the ledger does not note": (
        "            if seeded:\n                connection.executemany(_NOTE_SEEDED",
        "            if not keys:\n                connection.executemany(_NOTE_SEEDED",
        "test_secure_noise_after_or_before_noise_from_a_seed_has_no_bound",
    ),
    "uses of an earlier version taken for secure": (
        "*((EARLIER_SEEDS,) if unknown else ()),",
        "",
        "test_uses_that_an_earlier_version_counted_are_of_unknown_origin",
    ),
    "a state that forgets what had noise from a seed": (
        "connection.executemany(_NOTE_SEEDED, rows.seeded)",
        "",
        "test_a_state_takes_the_note_along",
    ),
    "ranks that count apart": (
        "dist.get_world_size() > 1",
        "dist.get_world_size() > 99",
        "test_ranks_count_together_and_stop_at_the_same_batch",
    ),
    # -- files and runs that are called whole or sent --------------------------------------------------------------
    "a damaged file called whole": (
        "        storage.check(path)\n        recorded",
        "        recorded",
        "test_damaged_files_are_named_and_deleted_with_their_seals_on_demand_only",
    ),
    "a result without its weights called whole": (
        "if there and path not in there:",
        "if there and path not in paths:",
        "test_weights_that_are_gone_are_named_and_made_again",
    ),
    "results of other settings called those of the configuration": (
        '"; ".join(_differences(recorded, settings)) if recorded else ""',
        '""',
        "test_results_of_other_settings_are_named_with_what_differs_and_can_be_made_again",
    ),
    "a run that the store did not accept noted as stored": (
        'Outcome("pending", reason(error))',
        'Outcome("stored", reason(error))',
        "test_file_that_is_missing_leaves_the_run_pending_with_its_name",
    ),
    # -- what comes once only -----------------------------------------------------------------------------------------
    "long secure draws begin again with their first key": (
        "                stream = Keystream()\n",
        '                first = first if start else __import__("os").urandom(32)\n'
        "                stream = Keystream(first)\n",
        "test_numbers_beyond_those_of_one_key_repeat_none_of_its_chunks",
    ),
}
"""What is wrong to the text that is replaced, which stands exactly once in the sources, the text in its place, and the
test that must fail, with its parameters if only one of several must."""


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


def texts(folder: Path, pattern: str) -> dict[Path, str]:
    """Path and text of the files below a folder."""
    return {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob(pattern))}


def places(old: str, sources: Mapping[Path, str]) -> list[Path]:
    """The file in which a bug can be planted, once for each time that its text stands there."""
    return [path for path, text in sources.items() for _ in range(text.count(old))]


def identifier(test: str, tests: Mapping[Path, str]) -> str:
    """A test as pytest names it."""
    (path,) = (path for path, text in tests.items() if f"\ndef {test.partition('[')[0]}(" in text)
    return f"{path}::{test}"


def _first(sources: Iterable[str]) -> int:
    """0, 1 or 2, which other sources change."""
    return zlib.crc32("".join(sources).encode()) % 3


def _outcome(old: str, new: str, test: str, folder: Path) -> str:
    """Empty if the test fails with the bug; else what is the matter."""
    sources = texts(folder / "src", "*.py")
    found = places(old, sources)
    if len(found) != 1:
        return f"its place is gone: the text stands in the sources {len(found)} times"
    found[0].write_text(sources[found[0]].replace(old, new), encoding="utf-8")
    code = _apart(folder / "src", [test], folder / "log")
    found[0].write_text(sources[found[0]], encoding="utf-8")
    log = (folder / "log").read_text()
    if code == SOME_FAIL:
        broken = re.search(r"^E +((?:Name|Type|Attribute|Syntax|Import)Error: .*)", log, re.MULTILINE)
        return f"the planted version does not run: {broken[1]}" if broken else ""
    return "SURVIVED" if code == ALL_PASS else f"no test ran (code {code}): {log[-300:]}"


def main(words: Sequence[str]) -> int:
    """Plant the chosen bugs and print a table; the code is 1 if one of them survives or cannot be planted."""
    options = {word for word in words if word.startswith("--")}
    words = [word for word in words if word not in options]
    for module in LOADED:
        importlib.import_module(module)
    tests = texts(ROOT / "tests", "test_*.py")
    chosen = {
        name: (old, new, identifier(test, tests))
        for name, (old, new, test) in BUGS.items()
        if not words or any(word in name for word in words)
    }
    if "--third" in options:
        chosen = dict(list(chosen.items())[_first(texts(ROOT / "src", "*.py").values()) :: 3])
    failed, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(folder / "src", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        named = sorted({test for _, _, test in chosen.values()})
        if "--passed" not in options and _apart(folder / "src", named, folder / "log") != ALL_PASS:
            print(f"tests fail without any bug:\n{(folder / 'log').read_text()[-3000:]}")
            return 1
        for name, (old, new, test) in chosen.items():
            outcome = _outcome(old, new, test, folder)
            failed += bool(outcome)
            print(f"{name:76} {outcome or 'caught':8} {test.partition('::')[2]}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} bugs caught in {time.monotonic() - began:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
