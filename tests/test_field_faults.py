"""Faults that others have met at API Gateway, Lambda and SAM, and the tests that hold them here.

The numbers are those in the names of tests (``…_case_93``). Each entry names its tests; a test that is renamed or lost fails
here by name.
"""

from __future__ import annotations

import ast

import pytest

from agent_memory.aws.clients import config
from infra.local.template import ROOT, Template

FAULTS = {
    "93 the body arrives base64-encoded, or is no JSON; odd page parameters": [
        "http/test_edge.py::test_base64_body_equals_the_plain_one_case_93",
        "http/test_edge.py::test_wrong_body_is_a_400_as_json_case_93",
        "http/test_edge.py::test_wrong_base64_is_a_400_case_93",
        "http/test_messages.py::test_wrong_query_is_a_400_that_names_the_field_case_93",
        "functions/test_limits.py::test_a_body_that_is_none_is_a_400_of_both_functions_case_93",
        "functions/test_limits.py::test_odd_page_parameters_never_fail_the_function_case_93",
        "functions/test_events.py::test_an_event_file_is_answered_as_it_should_be",
    ],
    "94 CORS headers on the good path only": [
        "http/test_edge.py::test_preflight_is_answered_on_each_route_case_94",
        "http/test_edge.py::test_cors_headers_are_on_every_answer_case_94",
        "http/test_edge.py::test_cors_headers_are_on_401_and_413_case_94",
        "infra/test_template.py::test_errors_of_the_gateway_itself_carry_cors_headers_for_a_named_origin_only_case_94",
    ],
    "96 a long thread makes an answer over 6 MB": [
        "http/test_messages.py::test_long_thread_stays_below_the_answer_limit_case_96",
        "http/test_messages.py::test_list_of_threads_with_large_metadata_stays_below_the_answer_limit_case_96",
        "functions/test_limits.py::test_a_thread_that_is_far_larger_than_an_answer_is_read_page_by_page_case_96",
    ],
    "97 attachments add up until a thread cannot be used": [
        "http/test_chat.py::test_echoed_pictures_do_not_add_up_case_97",
        "http/test_edge.py::test_too_large_a_body_is_413_with_advice_case_97",
        "functions/test_limits.py::test_pictures_that_a_page_sends_again_and_again_end_in_advice_not_in_a_dead_thread_case_97",
    ],
    "98 the gateway gives up, the work goes on, the client tries again": [
        "http/test_repeats.py::test_repeated_run_of_the_same_message_stores_two_messages_case_98",
        "http/test_repeats.py::test_overlapping_repeat_waits_or_is_told_to_case_98",
        "http/test_repeats.py::test_overlapping_first_turns_answer_what_was_stored_case_98",
        "http/test_repeats.py::test_repeat_under_its_key_counts_once_though_another_turn_ended_in_between_case_98",
        "test_field_faults.py::test_every_function_ends_before_its_caller_gives_up_case_98",
        "infra/test_load.py::test_chats_side_by_side_lose_and_double_nothing",
    ],
    "101 resources of the template wait for each other": [
        "infra/test_template.py::test_no_resources_wait_for_each_other_case_101",
        "infra/test_transform.py::test_no_resources_wait_for_each_other_after_the_transform_case_101",
    ],
    "102 no environment variables, no region, a wrong endpoint": [
        "infra/test_template.py::test_a_handler_can_be_imported_without_any_environment_case_102",
        "infra/test_template.py::test_every_variable_of_a_function_is_a_setting_and_the_other_way_round_case_102",
        "functions/test_start.py::test_only_the_settings_read_variables_of_our_own_case_102",
        "functions/test_events.py::test_an_event_file_is_answered_as_it_should_be",  # with its own variables alone
        "test_settings.py::test_a_missing_setting_is_named_at_call_time_case_102",
        "aws/test_clients.py::test_the_environment_says_where_a_service_is_case_102",
    ],
    "103 the layer is built empty, or a shared module is missing": [
        "packages/test_packages.py::test_a_built_function_answers_its_events",
        "packages/test_packages.py::test_sizes_are_within_the_budget_and_nothing_for_tests_is_inside",
        "infra/test_check_build.py::test_a_layer_that_was_built_empty_is_named_case_103",
    ],
    "104 a library release stops enforcing a limit": [
        "http/test_threads.py::test_wrong_creation_names_the_field_and_writes_nothing_case_104",
        "functions/test_limits.py::test_what_is_over_a_limit_is_refused_and_writes_nothing_case_104",
        "functions/test_limits.py::test_a_turn_over_a_limit_is_refused_before_its_first_byte_and_writes_nothing_case_104",
        # Other than in the field report, fields that are not known are no error; they are not stored either.
        "functions/test_limits.py::test_unknown_fields_are_left_alone_and_not_stored_case_104",
    ],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_has_its_tests(fault):
    assert FAULTS[fault]
    for name in FAULTS[fault]:
        file, _, function = name.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, name


@pytest.mark.parametrize("chat_s", ["30", "300", "900"])
def test_every_function_ends_before_its_caller_gives_up_case_98(chat_s):
    template = Template(parameters={"ChatTimeoutSeconds": chat_s})
    functions = template.functions()
    patience_s = {}
    for api in template.of_type("AWS::Serverless::Api").values():
        for methods in api["DefinitionBody"]["paths"].values():
            for operation in methods.values():
                integration = operation["x-amazon-apigateway-integration"]
                name = next(name for name in functions if f"/{name}.Arn" in integration["uri"])
                patience_s[name] = min(patience_s.get(name, 900), integration["timeoutInMillis"] / 1000)

    assert patience_s.keys() == {"ChatFunction", "MemoryFunction"}
    for name, seconds in patience_s.items():
        assert functions[name].timeout_s <= seconds
    assert functions["MemoryFunction"].timeout_s < patience_s["MemoryFunction"]


def test_a_silent_model_is_given_up_before_the_function_ends_case_98():
    timeout_s = Template().functions()["ChatFunction"].timeout_s
    assert config("bedrock-runtime").read_timeout < timeout_s
    assert config("dynamodb").read_timeout < Template().functions()["MemoryFunction"].timeout_s
