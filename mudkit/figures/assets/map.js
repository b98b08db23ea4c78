// What mudkit draws on a Leaflet map; maps.py gives the data. No function loads anything from anywhere.
var mudkitMap = (function () {
  "use strict";

  // The theme of the page around the map: JupyterLab's, that of a page with data-theme, else the system's.
  var painters = [];
  function isDark() { return document.documentElement.dataset.theme === "dark"; }
  function theme() {
    var dark = matchMedia("(prefers-color-scheme: dark)"), around = null;
    try {
      var page = window.parent.document;
      around = page.body.dataset.jpThemeLight ? page.body : page.documentElement.dataset.theme ? page.documentElement : null;
    } catch (error) { /* a frame of another origin */ }
    function set() {
      var said = !around ? dark.matches
        : around.dataset.jpThemeLight ? around.dataset.jpThemeLight === "false" : around.dataset.theme === "dark";
      document.documentElement.dataset.theme = said ? "dark" : "light";
      painters.forEach(function (paint) { paint(); });
    }
    if (around) new MutationObserver(set).observe(around, { attributes: true });
    dark.addEventListener("change", set);
    set();
  }
  theme();

  // data: bounds, window, attribution, world, land, coast, latitudes, longitudes, picture
  function base(map, data) {
    map.attributionControl.setPrefix('<a href="https://leafletjs.com" target="_blank" rel="noopener">Leaflet</a>');
    if (data.attribution) map.attributionControl.addAttribution(data.attribution);
    L.control.scale({ imperial: false }).addTo(map);
    wheelOnlyWithFocus(map);
    map.mudkitData = data;
    fit(map, 0, 0);
    map.createPane("mudkit-land").style.zIndex = 210;
    map.createPane("mudkit-picture").style.zIndex = 220;
    if (data.world) {
      map.getContainer().classList.add("mudkit-world");
      var quiet = { renderer: L.canvas({ pane: "mudkit-land" }), pane: "mudkit-land", interactive: false };
      var style = function (more) { return Object.assign({}, quiet, more); };
      var land = L.polygon(data.land, style({ stroke: false, fillOpacity: 1 })).addTo(map);
      var thin = style({ color: "#8a97a3", weight: 0.5, opacity: 0.55 });
      var w = data.window;
      data.latitudes.forEach(function (lat) { L.polyline([[lat, w[0][1]], [lat, w[1][1]]], thin).addTo(map); });
      data.longitudes.forEach(function (lon) { L.polyline([[w[0][0], lon], [w[1][0], lon]], thin).addTo(map); });
      var coast = L.polyline(data.coast, style({ weight: 1, fill: false })).addTo(map);
      var paint = function () {
        land.setStyle({ fillColor: isDark() ? "#232a34" : "#fbfaf6" });
        coast.setStyle({ color: isDark() ? "#6b7785" : "#9aa7b1" });
      };
      painters.push(paint);
      paint();
      graticuleLabels(map, data.latitudes, data.longitudes);
    }
    if (data.picture) {
      var picture = L.imageOverlay(data.picture.url, data.picture.bounds, {
        pane: "mudkit-picture", alt: "Density of the trace's positions"
      }).addTo(map);
      // A pixel of a far picture that is enlarged is a grey rectangle: it fades.
      if (data.coarse) whenZoomed(map, function () {
        var element = picture.getElement();
        var enlarged = element.naturalWidth ? element.getBoundingClientRect().width / element.naturalWidth : 1;
        picture.setOpacity(enlarged > 6 ? 0 : enlarged > 3 ? 0.5 : 1);
      });
    }
  }

  function whenZoomed(map, renew) {
    map.on("zoomend viewreset", renew);
    map.whenReady(function () { setTimeout(renew, 0); });
  }

  // data: pictures {url, bounds, side (of a pixel, in widths of the world)}
  function streets(map, data) {
    var layers = data.pictures.map(function (picture) {
      return { side: picture.side, layer: L.imageOverlay(picture.url, picture.bounds, {
        pane: "mudkit-picture", alt: "Density of the trace's positions, finer"
      }) };
    });
    whenZoomed(map, function () {
      var width = 256 * Math.pow(2, map.getZoom());
      layers.forEach(function (part) {
        var pixel = part.side * width, fits = pixel > 0.45 && pixel < 6;
        if (fits !== map.hasLayer(part.layer)) map[fits ? "addLayer" : "removeLayer"](part.layer);
      });
    });
  }

  // data: lines [[lat, lon]], attribution
  function background(map, data) {
    map.attributionControl.addAttribution(escaped(data.attribution));
    map.createPane("mudkit-background").style.zIndex = 215;
    var lines = L.polyline(data.lines, {
      renderer: L.canvas({ pane: "mudkit-background" }), pane: "mudkit-background", interactive: false,
      weight: 1, fill: false, smoothFactor: 1
    }).addTo(map);
    function paint() { lines.setStyle({ color: isDark() ? "#8fa7c4" : "#5f7ea3" }); }
    painters.push(paint);
    paint();
  }

  function escaped(text) {
    var box = document.createElement("span");
    box.textContent = text;
    return box.innerHTML;
  }

  // data: cities [name, lat, lon], the largest first; attribution
  function cities(map, data) {
    if (!data.cities.length) return;
    map.attributionControl.addAttribution(escaped(data.attribution));
    var box = L.DomUtil.create("div", "mudkit-cities", map.getContainer());
    function draw() {
      box.textContent = "";
      var size = map.getSize(), taken = [];
      var legend = map.getContainer().querySelector(".mudkit-legend"), frame = map.getContainer().getBoundingClientRect();
      if (legend) {
        var around = legend.getBoundingClientRect();
        taken.push([around.left - frame.left, around.top - frame.top, around.right - frame.left, around.bottom - frame.top]);
      }
      taken.push([0, 0, 60, 90]);  // the zoom buttons
      data.cities.forEach(function (city) {
        if (taken.length > 26) return;
        var at = map.latLngToContainerPoint([city[1], city[2]]);
        var half = 3.6 * city[0].length + 4, place = [at.x - half, at.y - 22, at.x + half, at.y + 4];
        if (place[0] < 0 || place[2] > size.x || place[1] < 0 || place[3] > size.y - 24) return;
        if (taken.some(function (other) {
          return place[0] < other[2] && place[2] > other[0] && place[1] < other[3] && place[3] > other[1];
        })) return;
        taken.push(place);
        var label = L.DomUtil.create("span", "", box);
        label.textContent = city[0];
        label.style.left = at.x + "px";
        label.style.top = at.y + "px";
      });
    }
    map.on("move zoom resize", draw);
    map.whenReady(function () { setTimeout(draw, 0); });
  }

  // data: levels {z, x, y (differences of column and row), in (tenths), n, leaf}, colours, label
  function density(map, data) {
    var levels = data.levels.map(function (level) {
      var world = Math.pow(2, level.z), column = 0, row = 0;
      return { z: level.z, cells: level.n.map(function (n, at) {
        column += level.x[at];
        row += level.y[at];
        var x = (column + (Math.floor(level["in"][at] / 10) + 0.5) / 10) / world;
        var y = (row + (level["in"][at] % 10 + 0.5) / 10) / world;
        var lat = Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) * 180 / Math.PI;
        return { at: L.latLng(lat, 360 * x - 180), n: n, leaf: level.leaf[at] === "1" };
      }) };
    });
    var renderer = L.canvas({ padding: 0.3 }), group = withTexts(L.featureGroup()).addTo(map);
    var last = levels[levels.length - 1].z, drawn = -1;
    function number(value) {
      return value.toLocaleString("en", value < 1000 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 0 });
    }
    function metres(zoom) {
      var wide = 40075017 * Math.cos(map.getCenter().lat * Math.PI / 180) / Math.pow(2, zoom);
      var round = Number(wide.toPrecision(2));
      return round >= 1000 ? (round / 1000).toLocaleString("en") + " km" : round + " m";
    }
    function draw(force) {
      // A cell is 8 to 16 pixels wide.
      var target = Math.max(levels[0].z, Math.min(last, Math.floor(map.getZoom() + 0.01) + 5));
      if (force !== true && target === drawn) return;
      drawn = target;
      var shown = [], most = 1;
      levels.forEach(function (level) {
        if (level.z > target) return;
        level.cells.forEach(function (cell) {
          if (level.z < target && !cell.leaf) return;
          shown.push([cell, level.z]);
          if (level.z === target) most = Math.max(most, cell.n);
        });
      });
      shown.sort(function (a, b) { return a[0].n - b[0].n; });  // those with most positions lie above
      group.closeTooltip();
      group.clearLayers();
      shown.forEach(function (part) {
        var cell = part[0], side = 256 * Math.pow(2, map.getZoom() - part[1]);
        // In a coarser cell as many positions lie thinner.
        var share = cell.n / Math.pow(4, target - part[1]), top = Math.log(most) || 1;
        var shade = Math.max(0, Math.min(1, Math.log(Math.max(share, 1)) / top));
        var disc = L.circleMarker(cell.at, {
          renderer: renderer, radius: Math.max(2.5, Math.min(7, 0.45 * side)), stroke: false,
          fillColor: data.colours[Math.round(shade * (data.colours.length - 1))], fillOpacity: 0.8
        });
        disc.mudkitText = number(cell.n) + " " + (cell.n === 1 ? data.label.replace(/s$/, "") : data.label)
          + ", cell of " + metres(part[1]);
        group.addLayer(disc);
      });
      var box = map.getContainer().querySelector(".mudkit-legend");
      if (!box) return;
      box.querySelector("b").textContent = data.label + " in a cell of " + metres(target) + " (logarithmic)";
      var ticks = box.querySelectorAll(".ticks span");
      [1, Math.sqrt(most), most].forEach(function (value, at) { ticks[at].textContent = number(Math.round(value)); });
    }
    legend(map, {
      title: data.label, colours: data.colours, ticks: [[0, "1"], [0.5, ""], [1, ""]], keys: []
    });
    map.on("zoomend", draw);
    map.whenReady(function () { setTimeout(function () { draw(true); }, 0); });
  }

  // Show the bounds beside or below a legend of this size in the upper right corner, whichever shows them larger.
  function fit(map, width, height) {
    var data = map.mudkitData;
    map.setMaxBounds(null).setMinZoom(0);
    var beside = map.getBoundsZoom(data.bounds, false, L.point(width + 16, 16));
    var below = map.getBoundsZoom(data.bounds, false, L.point(16, height + 16));
    map.fitBounds(data.bounds, {
      paddingTopLeft: [8, beside < below ? height + 8 : 8],
      paddingBottomRight: [beside < below ? 8 : width + 8, 8],
      animate: false
    });
    map.setMinZoom(Math.min(map.getZoom(), map.getBoundsZoom(data.window, true)));
    map.setMaxBounds(data.window);
  }

  // A page that is scrolled must not stop at a map: the wheel zooms only after a click or Tab into it.
  function wheelOnlyWithFocus(map) {
    map.scrollWheelZoom.disable();
    map.on("focus", function () { map.scrollWheelZoom.enable(); });
    map.on("blur", function () { map.scrollWheelZoom.disable(); });
  }

  function graticuleLabels(map, latitudes, longitudes) {
    var box = L.DomUtil.create("div", "mudkit-graticule", map.getContainer());
    function degrees(value, plus, minus) {
      var turned = ((value + 540) % 360) - 180;
      return Math.abs(+turned.toFixed(4)) + "°" + (turned === 0 || turned === -180 ? "" : turned > 0 ? plus : minus);
    }
    function put(text, left, top) {
      var label = L.DomUtil.create("span", "", box);
      label.textContent = text;
      label.style.left = left + "px";
      label.style.top = top + "px";
    }
    function draw() {
      box.textContent = "";
      var size = map.getSize();
      latitudes.forEach(function (lat) {
        var y = map.latLngToContainerPoint([lat, map.getCenter().lng]).y;
        if (y > 90 && y < size.y - 40) put(degrees(lat, "N", "S"), 3, y - 7);
      });
      var right = 60;  // of the label before, or of the zoom buttons
      longitudes.forEach(function (lon) {
        var x = map.latLngToContainerPoint([map.getCenter().lat, lon]).x;
        if (x < right || x > size.x - 20) return;
        put(degrees(lon, "E", "W"), x - 12, 3);
        right = x + 44;
      });
    }
    map.on("move zoom resize", draw);
    draw();
  }

  // data: boxes [south, west, north, east, shade, text], colours
  function cells(map, data) {
    var renderer = L.canvas({ padding: 0.2 });
    var group = L.featureGroup();
    data.boxes.forEach(function (box) {
      var rectangle = L.rectangle([[box[0], box[1]], [box[2], box[3]]], {
        renderer: renderer, stroke: false, fillColor: data.colours[box[4]], fillOpacity: 0.72
      });
      rectangle.mudkitText = box[5];
      group.addLayer(rectangle);
    });
    withTexts(group).addTo(map);
  }

  // data: points [lat, lon, radius, shade, text], colours
  function points(map, data) {
    var renderer = L.canvas({ padding: 0.2 });
    var group = L.featureGroup();
    data.points.forEach(function (point) {
      var marker = L.circleMarker([point[0], point[1]], {
        renderer: renderer, radius: point[2], weight: 1, color: "#fff", opacity: 0.9,
        fillColor: data.colours[point[3]], fillOpacity: 0.85
      });
      marker.mudkitText = point[4];
      group.addLayer(marker);
    });
    withTexts(group).addTo(map);
  }

  // data: areas [lat, lon, metres, text]
  function areas(map, data) {
    data.areas.forEach(function (area) {
      var line = { weight: 1.5, dashArray: "6 4", fillOpacity: 0.08 };
      var circle = L.circle([area[0], area[1]], Object.assign({ radius: area[2], interactive: false }, line)).addTo(map);
      var paint = function () { var ink = isDark() ? "#c9d1d9" : "#333"; circle.setStyle({ color: ink, fillColor: ink }); };
      painters.push(paint);
      paint();
      var middle = L.circleMarker([area[0], area[1]], { radius: 4, color: "#fff", weight: 1, fillColor: "#000", fillOpacity: 1 });
      middle.mudkitText = area[3];
      withTexts(L.featureGroup([middle])).addTo(map);
    });
  }

  function withTexts(group) {
    return group.bindTooltip(function (layer) {
      var box = document.createElement("div");
      box.textContent = layer.mudkitText;
      return box;
    }, { sticky: true });
  }

  // data: points [lat, lon, share of the largest weight], most (this weight), radius, blur, stops
  function heat(map, data) {
    var gradient = {};
    data.stops.forEach(function (stop, at) { gradient[(at + 1) / data.stops.length] = stop; });
    var layer = L.heatLayer(data.points, {
      radius: data.radius, blur: data.blur, maxZoom: 0, minOpacity: 0.05, gradient: gradient, max: densest()
    });
    // The full colour is that of the densest place at this zoom, so that a legend from low to high is true at each.
    function densest() {
      var side = (data.radius + data.blur) / 2, sums = {}, most = 0;
      data.points.forEach(function (point) {
        var place = map.project([point[0], point[1]]);
        var key = Math.floor(place.x / side) + " " + Math.floor(place.y / side);
        sums[key] = (sums[key] || 0) + point[2];
        most = Math.max(most, sums[key]);
      });
      return most || 1;
    }
    // The legend has the weight of that place, which depends on the zoom.
    function number(value) {
      return value.toLocaleString("en", value < 1000 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 0 });
    }
    function renew() {
      var most = densest();
      layer.setOptions({ max: most });
      var label = map.getContainer().querySelector(".mudkit-legend .ticks span:last-child");
      if (label) label.textContent = number(most * data.most);
    }
    map.on("zoomend", renew);
    map.whenReady(function () { setTimeout(renew, 0); });  // the legend is added after this layer
    layer.addTo(map);
  }

  function scale(colours) {
    var space = "http://www.w3.org/2000/svg";
    var bar = document.createElementNS(space, "svg");
    bar.setAttribute("viewBox", "0 0 " + colours.length + " 1");
    bar.setAttribute("preserveAspectRatio", "none");
    bar.setAttribute("aria-hidden", "true");
    colours.forEach(function (colour, at) {
      var part = document.createElementNS(space, "rect");
      part.setAttribute("x", at);
      part.setAttribute("width", 1.05);
      part.setAttribute("height", 1);
      part.setAttribute("fill", colour);
      bar.appendChild(part);
    });
    return bar;
  }

  // data: title, colours (none: no scale), ticks [share, text], keys [colour, text]
  function legend(map, data) {
    var control = L.control({ position: "topright" });
    control.onAdd = function () {
      var box = L.DomUtil.create("div", "mudkit-legend");
      L.DomUtil.create("b", "", box).textContent = data.title;
      if (data.colours.length) box.appendChild(scale(data.colours));
      var ticks = data.ticks.length ? L.DomUtil.create("div", "ticks", box) : null;
      data.ticks.forEach(function (tick) {
        var label = L.DomUtil.create("span", "", ticks);
        label.textContent = tick[1];
        label.style.left = 100 * tick[0] + "%";
        label.style.transform = "translateX(" + -100 * tick[0] + "%)";
      });
      data.keys.forEach(function (key) {
        var line = L.DomUtil.create("div", "key", box);
        L.DomUtil.create("i", "", line).style.background = key[0];
        line.appendChild(document.createTextNode(key[1]));
      });
      L.DomEvent.disableClickPropagation(box);
      return box;
    };
    control.addTo(map);
    fit(map, control.getContainer().offsetWidth, control.getContainer().offsetHeight);
  }

  // data: boxes [south, west, north, east], pictures by choice and label: [box, shade, text], labels, choices,
  // colours, first, title, by
  function slides(map, data) {
    var renderer = L.canvas({ padding: 0.2 });
    var group = withTexts(L.featureGroup()).addTo(map);
    var control = L.control({ position: "topright" });
    control.onAdd = function () {
      var box = L.DomUtil.create("div", "mudkit-legend mudkit-slides");
      function labelled(name) {
        var label = L.DomUtil.create("label", "", box);
        label.appendChild(document.createTextNode(name));
        return label;
      }
      var choice = L.DomUtil.create("select", "", labelled(data.by + " "));
      data.choices.forEach(function (name, at) {
        var option = L.DomUtil.create("option", "", choice);
        option.value = at;
        option.textContent = name;
      });
      var told = L.DomUtil.create("output", "", box);
      var slider = L.DomUtil.create("input", "", box);
      slider.type = "range";
      slider.min = 0;
      slider.max = data.labels.length - 1;
      slider.value = data.first;
      slider.setAttribute("aria-label", "time");
      var play = L.DomUtil.create("button", "", box), timer = null;
      play.textContent = "play";
      function stop() {
        clearInterval(timer);
        timer = null;
        play.textContent = "play";
      }
      function draw() {
        var picture = data.pictures[+choice.value][+slider.value];
        group.closeTooltip();  // a cell that goes takes its text with it: Leaflet would leave it standing
        group.clearLayers();
        picture.forEach(function (cell) {
          var at = data.boxes[cell[0]];
          var rectangle = L.rectangle([[at[0], at[1]], [at[2], at[3]]], {
            renderer: renderer, stroke: false, fillColor: data.colours[cell[1]], fillOpacity: 0.72
          });
          rectangle.mudkitText = data.title + ": " + cell[2];
          group.addLayer(rectangle);
        });
        told.textContent = data.labels[+slider.value] + ", " + picture.length + (picture.length === 1 ? " cell" : " cells");
        slider.setAttribute("aria-valuetext", told.textContent);
      }
      choice.addEventListener("change", draw);
      slider.addEventListener("input", draw);
      play.addEventListener("click", function () {
        if (timer !== null) { stop(); return; }
        play.textContent = "stop";
        if (+slider.value === +slider.max) slider.value = -1;
        timer = setInterval(function () {
          slider.value = +slider.value + 1;
          draw();
          if (+slider.value === +slider.max) stop();
        }, 400);
      });
      draw();
      L.DomEvent.disableClickPropagation(box);
      L.DomEvent.disableScrollPropagation(box);
      return box;
    };
    control.addTo(map);
    var corner = control.getContainer().parentNode;
    fit(map, corner.offsetWidth, corner.offsetHeight);
  }

  return { base: base, streets: streets, background: background, density: density, cities: cities, cells: cells, points: points, areas: areas, heat: heat, legend: legend, slides: slides };
})();
