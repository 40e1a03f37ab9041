"""Sign-in by the tokens of an OIDC issuer: the issuer's keys, the checks of a token, and what is handed to the functions.

Only the authorizer imports `keys` and `tokens`; its own bundle brings PyJWT.
"""
