"""What all figures stand on: the template, colours, axes of time, panels, pages."""
