"""The template deployed into the AWS emulator, with the roles of its functions enforced, for end-to-end tests."""
