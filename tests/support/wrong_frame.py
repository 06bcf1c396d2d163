"""Strategies that are like a good one but for some members."""


class Wrong:
    """Builds the logic of a good strategy with some members replaced."""

    def __init__(self, strategy, name, **members):
        self._strategy, self.name, self.stage, self._members = strategy, name, strategy.stage, members

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_strategy"], name)

    def build(self, setting, snapshot=None):
        logic = self._strategy.build(setting, snapshot)
        members = {"__init__": _keep, "__getattr__": _delegate, "lacks": None, **self._members}
        return type("WrongLogic", (), members)(logic, setting)


def _keep(self, logic, setting):
    self.__dict__.update(logic=logic, setting=setting)


def _delegate(self, name):
    if name == self.lacks:
        raise AttributeError(name)
    return getattr(self.__dict__["logic"], name)
