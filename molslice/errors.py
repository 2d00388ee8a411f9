"""The error that tells a user what is wrong, without an import that takes long."""


class MolsliceError(ValueError):
    """A user's mistake. The message names what is wrong, where, and the choices."""
