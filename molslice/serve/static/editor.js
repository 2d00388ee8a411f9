// The editor of molecules: OpenChemLib, loaded when it is opened first.

// Create the editor in an element. `onDraw` gets the SMILES after each change by the user.
export async function openEditor(place, onDraw) {
  const { CanvasEditor, Molecule } = await import("./vendor/openchemlib.js");
  const editor = new CanvasEditor(place, { initialMode: "molecule" });
  let current = "";
  editor.setOnChangeListener(({ type, isUserEvent }) => {
    if (type !== "molecule" || !isUserEvent) return;
    current = editor.getMolecule().toIsomericSmiles();
    onDraw(current);
  });
  return {
    // Show a SMILES. One that cannot be read leaves the drawing unchanged.
    show(smiles) {
      if (smiles === current) return;
      try {
        editor.setMolecule(Molecule.fromSmiles(smiles));
        current = smiles;
      } catch {
        // the prediction says what is wrong with it
      }
    },
  };
}
