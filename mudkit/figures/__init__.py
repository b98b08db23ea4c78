"""Figures: tables in, plotly figures and folium maps out; all of them work without a network."""
