"""template.yaml keeps what it promises."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from agent_memory.http.routes import CHAT_ROUTES, MEMORY_ROUTES
from agent_memory.settings import NAMES
from infra.local.gateway import Routes
from infra.local.template import ROOT, TEMPLATE, Template, load

RAW = load(TEMPLATE)
EVERYTHING = {
    "Search": "existing",
    "OpenSearchUrl": "https://search.example",
    "OpenSearchArn": "arn:aws:es:eu-west-1:123456789012:domain/d",
    "BedrockModelArns": "arn:aws:bedrock:eu-west-1::foundation-model/m",
    "OpenAiKeySecretArn": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:s",
    "KmsKeyArn": "arn:aws:kms:eu-west-1:123456789012:key/k",
    "CorsOrigins": "https://app.example,https://other.example",
    "AlarmTopicArn": "arn:aws:sns:eu-west-1:123456789012:t",
    "AccessLogs": "true",
    "AuthMode": "jwt",
    "JwtIssuer": "https://login.example",
    "JwtAudience": "memory",
    "OwnerCredentials": "true",
    "Tracing": "true",
    "SubnetIds": "subnet-1,subnet-2",
    "SecurityGroupIds": "sg-1",
    "ChatConcurrency": "20",
    "MemoryConcurrency": "10",
    "SnapStart": "true",
    "ToolPolicyArn": "arn:aws:iam::123456789012:policy/tools",
    "WebAclArn": "arn:aws:wafv2:eu-west-1:123456789012:regional/webacl/a/b",
}
FULL = Template(parameters=EVERYTHING)
PLAIN = Template()
FUNCTIONS = FULL.of_type("AWS::Serverless::Function")
ROLES = FULL.of_type("AWS::IAM::Role")
TABLES = ("ThreadsTable", "MessagesTable", "RunsTable", "ClaimsTable")


def references(value):
    """Logical ids that a piece of the template names."""
    if isinstance(value, list):
        return {name for item in value for name in references(item)}
    if not isinstance(value, dict):
        return set()
    found = set()
    for key, item in value.items():
        if key == "Ref":
            found.add(item)
        elif key == "Fn::GetAtt":
            found.add((item if isinstance(item, str) else item[0]).split(".")[0])
        elif key == "Fn::Sub":
            text = item if isinstance(item, str) else item[0]
            found |= {name.split(".")[0] for name in re.findall(r"\$\{([^}!]+)\}", text)}
            if isinstance(item, list):
                found |= references(item[1])
        elif key == "DependsOn":
            found |= set([item] if isinstance(item, str) else item)
        else:
            found |= references(item)
    return found


def test_no_resources_wait_for_each_other_case_101():
    common = references(RAW["Globals"]["Function"])
    edges = {
        name: (references(resource) | (common if resource["Type"] == "AWS::Serverless::Function" else set()))
        & RAW["Resources"].keys()
        for name, resource in RAW["Resources"].items()
    }
    while edges:
        free = [name for name, needs in edges.items() if not needs & edges.keys()]
        assert free, f"a cycle among {sorted(edges)}"
        for name in free:
            del edges[name]


def test_every_variable_of_a_function_is_a_setting_and_the_other_way_round_case_102():
    known = {name.upper() for name in NAMES}
    declared = {variable for function in FULL.functions().values() for variable in function.variables} - {
        "AWS_LAMBDA_EXEC_WRAPPER"
    }

    assert declared - known == set()
    # Those that make no sense in the cloud, and those whose default is right there.
    assert known - declared == {
        "AGENTS_MODULE",
        "INDEX_PATH",
        "MAX_ANSWER_BYTES",
        "OPENAI_API_KEY",
        "OPENSEARCH_INDEX",
        "RECEIPT_KEY_PATH",
        "STOP_BEFORE_DEADLINE_MS",
    }


@pytest.mark.parametrize("name", sorted(FULL.functions()))
def test_a_handler_can_be_imported_without_any_environment_case_102(name):
    folder = FULL.functions()[name].folder
    path = ":".join(str(ROOT / "layers" / layer) for layer in ("agent_memory", "agents", "runtime"))
    answer = subprocess.run(
        [sys.executable, "-c", "import app; print(callable(app.handler))"],
        cwd=folder,
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )

    assert answer.stdout.strip() == "True", answer.stderr


def test_every_route_of_the_application_reaches_its_function():
    routes = Routes(FULL.routes())
    served = {}
    for function, table in (("ChatFunction", CHAT_ROUTES), ("MemoryFunction", MEMORY_ROUTES)):
        for route in table:
            if route.pattern == "/health":
                continue  # for function URLs and load balancers; behind this gateway there is no open route
            match = routes.find(route.method, re.sub(r"\{\w+\}", "x", route.pattern))
            served[f"{route.method} {route.pattern}"] = (match.route.function if match else None, function)

    assert len(served) > 40
    assert {route: pair for route, pair in served.items() if pair[0] != pair[1]} == {}


def test_chat_routes_stream_and_memory_routes_do_not():
    for api in FULL.of_type("AWS::Serverless::Api").values():
        assert api["EndpointConfiguration"]["Type"] == "REGIONAL"
        for methods in api["DefinitionBody"]["paths"].values():
            for operation in methods.values():
                integration = operation["x-amazon-apigateway-integration"]
                if "ChatFunction" in integration["uri"]:
                    assert integration["responseTransferMode"] == "STREAM"
                    assert "2021-11-15" in integration["uri"]
                    assert integration["uri"].endswith("/response-streaming-invocations")
                else:
                    assert integration["timeoutInMillis"] <= 29_000
    chat, memory = FULL.functions()["ChatFunction"], FULL.functions()["MemoryFunction"]
    assert chat.variables["AWS_LAMBDA_EXEC_WRAPPER"] == "/opt/streaming"
    assert memory.timeout_s < 29


def test_calls_are_signed_or_carry_a_token_of_the_issuer():
    def caller(template):
        body = template.of_type("AWS::Serverless::Api")["Api"]["DefinitionBody"]
        return body["components"]["securitySchemes"]["caller"]

    assert caller(PLAIN)["x-amazon-apigateway-authtype"] == "awsSigv4"
    assert "AuthorizerFunction" not in PLAIN.functions()
    assert {route.authorizer for route in PLAIN.routes()} == {None}

    assert caller(FULL)["x-amazon-apigateway-authtype"] == "custom"
    (authorizer,) = {route.authorizer for route in FULL.routes() if route.method != "OPTIONS"}
    assert authorizer.function == "AuthorizerFunction"
    assert authorizer.keeps_s <= 60
    assert re.search(authorizer.expected, "Bearer eyJ0.eyJ1-_.sig_-")
    for header in ("Basic YTpi", "Bearer", "Bearer a b", "Bearer ä", " Bearer a"):
        assert not re.search(authorizer.expected, header), header
    # End users share no thread ids, so there is nothing to claim.
    assert FULL.functions()["ChatFunction"].variables["CLAIMS_TABLE"] == ""
    assert PLAIN.functions()["ChatFunction"].variables["CLAIMS_TABLE"] == "ClaimsTable"


def test_the_authorizer_touches_no_data_and_may_be_called_by_this_api_alone():
    (policy,) = ROLES["AuthorizerRole"]["Policies"]
    actions = {action for statement in policy["PolicyDocument"]["Statement"] for action in statement["Action"]}
    assert {action.split(":")[0] for action in actions} == {"logs", "xray"}
    permission = FULL.of_type("AWS::Lambda::Permission")["AuthorizerPermission"]
    assert permission["Principal"] == "apigateway.amazonaws.com"
    assert permission["SourceArn"].endswith(":Api/authorizers/*")


def test_credentials_of_an_owner_are_for_signed_in_users_and_reach_tables_alone():
    assert RAW["Rules"]["OwnersSignIn"]["Assertions"][0]["Assert"] == {"Fn::Equals": [{"Ref": "AuthMode"}, "jwt"]}
    assert "OwnerRole" not in PLAIN.of_type("AWS::IAM::Role")
    statements = ROLES["OwnerRole"]["Policies"][0]["PolicyDocument"]["Statement"]
    reached = [resource for one in statements if one["Sid"] == "Tables" for resource in one["Resource"]]
    assert not [resource for resource in reached if "Claims" in resource or "by_id" in resource]
    assert "MessagesTable.Arn/index/by_mid" in str(reached)
    trusted = ROLES["OwnerRole"]["AssumeRolePolicyDocument"]["Statement"][0]["Principal"]["AWS"]
    policy = FULL.of_type("AWS::IAM::Policy")["OwnerRolePolicy"]
    assert {role.split(".")[0] for role in trusted} == set(policy["Roles"]) == {"ChatRole", "MemoryRole"}
    for name in ("ChatFunction", "MemoryFunction"):
        assert FULL.functions()[name].variables["OWNER_ROLE_ARN"] == "OwnerRole.Arn"
        assert PLAIN.functions()[name].variables["OWNER_ROLE_ARN"] == ""


def test_signing_in_needs_issuer_and_audience():
    rule = RAW["Rules"]["SignInNeedsItsIssuer"]
    assert rule["RuleCondition"] == {"Fn::Equals": [{"Ref": "AuthMode"}, "jwt"]}
    assert {name for name in ("JwtIssuer", "JwtAudience") if name in str(rule["Assertions"])} == {
        "JwtIssuer",
        "JwtAudience",
    }


def test_no_identity_is_a_401_of_the_gateway_in_both_modes():
    def response(template, kind):
        body = template.of_type("AWS::Serverless::Api")["Api"]["DefinitionBody"]
        return body["x-amazon-apigateway-gateway-responses"].get(kind)

    # A request without a signature and one without a token get different words of the gateway's.
    assert response(PLAIN, "MISSING_AUTHENTICATION_TOKEN")["statusCode"] == 401
    assert response(FULL, "MISSING_AUTHENTICATION_TOKEN")["statusCode"] == 404
    for kind in ("UNAUTHORIZED", "ACCESS_DENIED", "EXPIRED_TOKEN", "INVALID_SIGNATURE"):
        assert response(FULL, kind) is None, "DEFAULT_4XX shapes it and leaves its status"


def test_no_route_is_open_but_the_preflight():
    body = FULL.of_type("AWS::Serverless::Api")["Api"]["DefinitionBody"]
    for path, methods in body["paths"].items():
        for method, operation in methods.items():
            expected = [] if method == "options" else [{"caller": []}]
            assert operation["security"] == expected, f"{method} {path}"
        assert "options" in methods, path
    assert all("FunctionUrlConfig" not in function for function in FUNCTIONS.values())


def test_errors_of_the_gateway_itself_carry_cors_headers_for_a_named_origin_only_case_94():
    responses = FULL.of_type("AWS::Serverless::Api")["Api"]["DefinitionBody"]["x-amazon-apigateway-gateway-responses"]
    for kind in ("DEFAULT_4XX", "DEFAULT_5XX", "MISSING_AUTHENTICATION_TOKEN"):
        parameters = responses[kind]["responseParameters"]
        assert parameters["gatewayresponse.header.Access-Control-Allow-Origin"] == "'https://app.example'"
        assert '"error"' in responses[kind]["responseTemplates"]["application/json"]
    without = PLAIN.of_type("AWS::Serverless::Api")["Api"]["DefinitionBody"]["x-amazon-apigateway-gateway-responses"]
    assert without["DEFAULT_4XX"]["responseParameters"] == {}


def test_each_function_has_a_role_and_a_log_group_of_its_own():
    roles = [function["Role"] for function in FUNCTIONS.values()]
    groups = [function["LoggingConfig"]["LogGroup"] for function in FUNCTIONS.values()]

    assert len(set(roles)) == len(roles)
    assert len(set(groups)) == len(groups)
    for group in groups:
        assert int(FULL.of_type("AWS::Logs::LogGroup")[group]["RetentionInDays"]) == 30


def statements(template):
    return [
        (name, statement)
        for name, role in template.of_type("AWS::IAM::Role").items()
        for policy in role["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
    ]


def test_no_role_may_do_everything_or_reach_everything():
    for name, statement in [*statements(FULL), *statements(PLAIN)]:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        assert all("*" not in action for action in actions), (name, statement)
    assert [name for name, statement in statements(PLAIN) if statement["Resource"] == "*"] == []
    # X-Ray and network interfaces know no narrower resource for these actions, and both are off by default.
    assert {statement["Sid"] for _, statement in statements(FULL) if statement["Resource"] == "*"} == {
        "Traces",
        "Network",
    }
    assert {name for name, role in ROLES.items() if "ManagedPolicyArns" in role} == {"ChatRole"}
    assert not any("ManagedPolicyArns" in role for role in PLAIN.of_type("AWS::IAM::Role").values())


@pytest.mark.parametrize("search", ["none", "existing", "domain", "serverless"])
def test_a_search_service_is_made_named_or_left_out(search):
    template = Template(parameters={**EVERYTHING, "Search": search})
    nested = {name: stack["TemplateURL"] for name, stack in template.of_type("AWS::CloudFormation::Stack").items()}
    variables = template.functions()["ChatFunction"].variables
    address, serverless, stack = {
        "none": ("", "false", {}),
        "existing": ("https://search.example", "false", {}),
        "domain": ("https://SearchDomain.Outputs.Endpoint", "false", {"SearchDomain": "infra/search/domain.yaml"}),
        "serverless": (
            "SearchCollection.Outputs.Endpoint",
            "true",
            {"SearchCollection": "infra/search/collection.yaml"},
        ),
    }[search]
    assert (variables["OPENSEARCH_URL"], variables["OPENSEARCH_SERVERLESS"], nested) == (address, serverless, stack)
    assert (variables["EMBEDDER"] != "") == (search != "none")
    made = template.of_type("Custom::SearchIndex")
    # It is asked for again where the service is another one.
    service = "https://search.example" if search == "existing" else search
    assert [index["Service"] for index in made.values()] == ([] if search == "none" else [service])
    for name, file in nested.items():
        asked = load(TEMPLATE.parent / file)
        given = template.of_type("AWS::CloudFormation::Stack")[name]["Parameters"]
        assert given.keys() == asked["Parameters"].keys()
        outputs = set(re.findall(rf"{name}\.Outputs\.(\w+)", str(RAW)))
        assert outputs <= asked["Outputs"].keys()


def test_a_collection_lets_readers_read_and_writers_write_and_nobody_else_in():
    template = Template(parameters={**EVERYTHING, "Search": "serverless"})
    policy = template.of_type("AWS::OpenSearchServerless::AccessPolicy")["SearchAccess"]
    search, upkeep = json.loads(policy["Policy"])
    assert search["Principal"] == ["ChatRole.Arn", "MemoryRole.Arn"]
    assert not re.search("Write|Create|Delete|Update", str(search["Rules"]))
    assert upkeep["Principal"] == ["IndexerRole.Arn", "JanitorRole.Arn"]
    assert "aoss:*" not in policy["Policy"]


def test_the_api_calls_published_versions_with_snapshots_and_else_the_function_as_it_is():
    plain = PLAIN.of_type("AWS::Serverless::Function")
    for name in ("ChatFunction", "MemoryFunction"):
        assert FUNCTIONS[name]["AutoPublishAlias"] == "live"
        assert FUNCTIONS[name]["SnapStart"] == {"ApplyOn": "PublishedVersions"}
        assert plain[name]["SnapStart"] == {"ApplyOn": "None"}
        assert "ReservedConcurrentExecutions" in FUNCTIONS[name]
        assert "ReservedConcurrentExecutions" not in plain[name]
    for template, alias, suffix in ((FULL, ":live", ".Alias"), (PLAIN, "", "")):
        addresses = re.findall(r"functions/(\w+)\.Arn(:\w+)?/", str(template.resources["Api"]))
        assert {found for function, found in addresses if function != "AuthorizerFunction"} == {alias}
        permissions = template.of_type("AWS::Lambda::Permission")
        assert {permissions[name]["FunctionName"] for name in ("ChatPermission", "MemoryPermission")} == {
            f"ChatFunction{suffix}",
            f"MemoryFunction{suffix}",
        }
        # The chat function calls itself where its failures have a place and its role lets it.
        itself = template.functions()["ChatFunction"].variables["CHAT_FUNCTION"]
        assert itself == f"local-chat{alias}"
        (calls,) = (
            one for role, one in statements(template) if role == "ChatRole" and one["Sid"] == "AsynchronousWork"
        )
        assert [arn.split("function:")[1] for arn in calls["Resource"] if "local-chat" in arn] == [itself]
    latest = FULL.of_type("AWS::Lambda::EventInvokeConfig")["ChatUnpublishedEvents"]
    alias = FUNCTIONS["ChatFunction"]["EventInvokeConfig"]
    assert latest["Qualifier"] == "$LATEST"
    for key in ("MaximumRetryAttempts", "MaximumEventAgeInSeconds"):
        assert latest[key] == alias[key]
    assert (
        latest["DestinationConfig"]["OnFailure"]["Destination"]
        == alias["DestinationConfig"]["OnFailure"]["Destination"]
    )


def test_only_the_indexer_reads_the_stream_and_titles_cannot_write_messages():
    def actions(role, resource):
        return {
            action
            for statement in ROLES[role]["Policies"][0]["PolicyDocument"]["Statement"]
            for action in (statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]])
            if resource in str(statement["Resource"])
        }

    assert "dynamodb:GetRecords" in actions("IndexerRole", "MessagesTable.StreamArn")
    assert not {a for a in actions("TitlesRole", "MessagesTable") if re.search("Put|Update|Delete|Write", a)}
    assert not {a for a in actions("IndexerRole", "MessagesTable") if re.search("Put|Update|Delete|Write", a)}
    assert [role for role in ROLES if "dynamodb:Scan" in str(ROLES[role])] == ["JanitorRole"]


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_recoverable_encrypted_protected_and_kept(name):
    resource = FULL.resources[name]
    table = resource["Properties"]

    assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["DeletionProtectionEnabled"] == "true"
    assert table["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True
    assert table["SSESpecification"]["KMSMasterKeyId"] == EVERYTHING["KmsKeyArn"]
    assert PLAIN.resources[name]["Properties"]["SSESpecification"] == {"SSEEnabled": True}


def test_every_table_and_index_is_partitioned_by_owner_or_id_case_37():
    keys = set()
    for name in TABLES:
        table = FULL.resources[name]["Properties"]
        keys.add(table["KeySchema"][0]["AttributeName"])
        for index in table.get("GlobalSecondaryIndexes", ()):
            keys.add(index["KeySchema"][0]["AttributeName"])

    assert keys == {"pk", "mid"}


def test_the_bucket_is_private_encrypted_and_refuses_plain_http_case_92():
    bucket = FULL.resources["AttachmentsBucket"]["Properties"]
    policy = FULL.of_type("AWS::S3::BucketPolicy")["AttachmentsPolicy"]["PolicyDocument"]["Statement"][0]

    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    assert bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert (policy["Effect"], policy["Principal"], policy["Action"]) == ("Deny", "*", "s3:*")
    assert policy["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    rules = {rule["Id"]: rule for rule in bucket["LifecycleConfiguration"]["Rules"]}
    assert rules["unfinished-uploads"]["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] == 1


def test_asynchronous_work_has_a_bound_a_place_for_failures_and_an_alarm():
    alarmed = str(FULL.of_type("AWS::CloudWatch::Alarm"))
    for name in ("ChatFunction", "TitlesFunction"):
        config = FUNCTIONS[name]["EventInvokeConfig"]
        queue = config["DestinationConfig"]["OnFailure"]["Destination"].split(".")[0]
        assert config["MaximumRetryAttempts"] == 2
        assert config["MaximumEventAgeInSeconds"] <= 3600
        assert FULL.resources[queue]["Type"] == "AWS::SQS::Queue"
        assert f"{queue}.QueueName" in alarmed
    (mapping,) = FULL.stream_mappings()
    assert mapping.partial
    assert mapping.bisect
    assert "IteratorAge" in alarmed


def test_functions_run_on_arm_with_the_same_runtime_as_their_layers():
    common = RAW["Globals"]["Function"]
    assert common["Architectures"] == ["arm64"]
    for layer in FULL.of_type("AWS::Serverless::LayerVersion").values():
        assert layer["CompatibleRuntimes"] == [common["Runtime"]]
        assert layer["CompatibleArchitectures"] == common["Architectures"]


def test_every_parameter_is_described_and_bounded():
    for name, parameter in RAW["Parameters"].items():
        assert parameter["Description"], name
        assert "Default" in parameter, name
        if parameter["Type"] == "Number":
            assert {"MinValue", "MaxValue"} <= parameter.keys() or "AllowedValues" in parameter, name
        elif parameter["Type"] == "String":
            assert "AllowedValues" in parameter or "AllowedPattern" in parameter, name
    grouped = {
        name
        for group in RAW["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
        for name in group["Parameters"]
    }
    assert grouped == RAW["Parameters"].keys()


def test_an_unused_search_leaves_the_indexer_to_the_files():
    (mapping,) = PLAIN.stream_mappings()
    assert mapping.function == "IndexerFunction"
    role = str(PLAIN.of_type("AWS::IAM::Role")["IndexerRole"])
    assert "RunsTable.Arn" in role
    assert not re.search("es:|aoss:", role)
    assert PLAIN.functions()["ChatFunction"].variables["EMBEDDER"] == ""
