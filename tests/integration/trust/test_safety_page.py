"""Every sentence of the safety page about what a suite may cause has an existing test."""

from __future__ import annotations

import re
from pathlib import Path

from tests.integration.trust import test_trust, test_trust_entry_points, test_trust_mcplab

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "safety.md"

HELD_BY = {
    "Commands that *read*": (
        "test_check_calls_no_judge_named_by_a_suite",
        "test_recheck_calls_no_judge_named_by_a_suite",
        "test_validate_and_convert_do_nothing_that_a_suite_names",
        "test_check_drives_no_target",
        "test_an_assistant_checks_evidence_without_a_foreign_judge",
    ),
    "They use a judge or a model of a suite": (
        "test_a_judge_of_the_workspace_is_used",
        "test_a_suite_that_describes_the_same_model_as_the_workspace_changes_nothing",
        "test_the_workspace_lists_the_suites_it_trusts",
    ),
    "The judge of an MCPLab workspace": (
        "test_check_calls_no_judge_that_only_an_mcplab_workspace_names",
        "test_an_assistant_calls_no_judge_that_only_an_mcplab_workspace_names",
        "test_a_line_of_the_workspace_file_allows_the_judge_of_an_mcplab_workspace",
    ),
    "A suite that redefines a name": ("test_a_suite_that_describes_another_model_under_the_same_name_is_refused",),
    "A judge from the command line": (
        "test_the_judge_of_the_command_and_of_the_environment_is_the_users_own",
        "test_a_judge_of_the_command_uses_the_address_of_the_environment",
        "test_workspace_variables_do_not_redirect_a_judge_of_the_command",
    ),
    "Commands that *run*": ("test_run_does_what_suites_of_the_working_folder_name", "test_pytest_runs_suites_of_the_working_folder_alone"),
    "A suite from outside that folder": (
        "test_run_does_nothing_that_a_foreign_suite_names",
        "test_a_link_out_of_the_working_folder_is_a_foreign_suite",
        "test_one_foreign_suite_among_several_is_enough",
        "test_an_assistant_runs_no_suite_that_it_sends_or_finds_outside",
        "test_a_suite_from_standard_input_is_not_run",
        "test_a_foreign_mcplab_workspace_is_not_run",
    ),
    "A model or an agent in a suite": (
        "test_a_model_for_a_target_of_the_workspace_is_named_with_its_variables",
        "test_run_uses_nothing_of_a_foreign_mcplab_workspace",
    ),
    "The files of an MCPLab workspace": (
        "test_run_uses_nothing_of_a_foreign_mcplab_workspace",
        "test_pytest_uses_nothing_of_a_foreign_mcplab_workspace",
        "test_an_assistant_runs_no_foreign_mcplab_workspace",
        "test_variables_outside_the_working_folder_are_not_read_for_a_workspace_inside",
        "test_that_line_allows_nothing_over_a_link_out_of_the_folder",
    ),
    "A `proctor.yaml` next to a suite": ("test_a_foreign_suite_cannot_bring_a_workspace_file",),
    "Running a target of `proctor.yaml`": (
        "test_a_foreign_suite_may_use_a_target_of_the_workspace",
        "test_a_foreign_suite_calls_no_tool_of_the_users_servers",
        "test_a_suite_from_standard_input_calls_no_tool",
        "test_an_assistant_sends_no_suite_that_calls_tools",
    ),
    "`--trust`": (
        "test_run_uses_a_foreign_suite_with_trust",
        "test_the_environment_can_trust",
        "test_pytest_runs_suites_of_the_working_folder_alone",
    ),
    "Rejections are reported": (
        "test_everything_a_suite_names_is_listed_without_values",
        "test_pytest_refuses_before_anything_runs_and_lists_everything",
        "test_nothing_that_a_suite_names_can_draw_on_the_terminal",
        "test_a_long_list_of_one_kind_does_not_hide_the_others",
    ),
    "A suite cannot trust itself": ("test_a_suite_cannot_trust_itself",),
    "The copy of a suite in a stored run": ("test_a_stored_copy_is_not_trusted_for_its_claimed_path",),
    "An assistant can name only files": ("test_an_assistant_reads_no_file_outside_the_working_folder",),
}


def test_every_sentence_about_suites_has_tests() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## What a suite may cause")[1].split("\n## ")[0]
    sentences = re.findall(r"^\* (.+)$", section, re.MULTILINE)
    unheld = [sentence for sentence in sentences if not any(sentence.startswith(start) for start in HELD_BY)]
    assert not unheld
    assert len(sentences) == len(HELD_BY)
    for name in (name for names in HELD_BY.values() for name in names):
        assert any(callable(getattr(module, name, None)) for module in (test_trust, test_trust_entry_points, test_trust_mcplab)), name
