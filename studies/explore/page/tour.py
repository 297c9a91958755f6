"""Three steps for who is here for the first time: beside the page, not over it."""

from nicegui import ui

from rftlab.studies.explore.page.setting import Setting

STEPS = (
    ("controls", "Drag a slider. The learning curve of the design follows: three seeds, test solid, train dashed."),
    ("chart-card", "Pin a curve under a name, and compare at equal rounds, rollouts or estimated seconds."),
    ("heat-card", "Fill the map to see where more prompts beat more rollouts; a cell shows its curve. Below: copy it."),
)
"""Where each points, by its class, and what it says."""


class Tour:
    """A card with a sentence, and a frame around what it is about."""

    def __init__(self, setting: Setting):
        self.setting, self.step = setting, len(STEPS)
        with ui.element("div").classes("card tour").props("role=region aria-label=Tour id=tour-card") as self.card:
            self.text = ui.label().props("role=status id=tour-text")
            with ui.element("div").classes("row"):
                self.forward = ui.button("Next", on_click=self.next).props("no-caps outline dense id=tour-next")
                ui.button("Close", on_click=self.end).props("no-caps flat dense id=tour-end")
        self.card.set_visibility(False)

    def begin(self) -> None:
        """Show the first step."""
        self.step = 0
        self.setting.toured = True
        self._show()

    def begin_once(self) -> None:
        """The same, where nobody was shown around yet."""
        if not self.setting.toured:
            self.begin()

    def next(self) -> None:
        """Show the next step, or end behind the last."""
        self.step += 1
        self._show()

    def end(self) -> None:
        """Show nothing more."""
        self.step = len(STEPS)
        self._show()

    def _show(self) -> None:
        ends = self.step >= len(STEPS)
        self.card.set_visibility(not ends)
        for place, (name, text) in enumerate(STEPS):
            ui.query(f".{name}").classes(**{"add" if place == self.step else "remove": "pointed"})
            if place == self.step:
                self.text.text = f"{place + 1} of {len(STEPS)}: {text}"
        self.forward.text = "Done" if self.step == len(STEPS) - 1 else "Next"
