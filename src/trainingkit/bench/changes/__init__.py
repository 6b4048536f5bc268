"""Does the controller follow a link that changes in mid-run? Its moves, and a replay of them, in a lab."""
