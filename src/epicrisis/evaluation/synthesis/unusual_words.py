"""Names, places, companies and clinical sentences of `unusual_identifiers`. No recognizer reads them."""

from __future__ import annotations

_FIRST_NAMES = """
Hildegard Tadeusz Ngozi Svetlana Chukwuemeka Anneliese Gunnhild Achieng Walburga Thurstan Ottoline Zbigniew Ximena
Eluned Gwenllian Sindri Ragnhild Bartholomew Perpetua Ignatius Dorothea Wilhelmina Cornelius Thaddeus Philippa Rosalind
Margarethe Friedrich Giancarlo Ludovico Fiammetta Ghislaine Thibault Aurelien Capucine Ingeborg Torvald Solveig Halvard
Yevgeniya Lyudmila Vsevolod Bronislava Kazimierz Wojciech Agnieszka Zoltan Katalin Ildiko Nkechi Olumide Folasade
Babajide Kwabena Akosua Yaw Abena Thandiwe Sipho Nomvula Lerato Makena Wanjiru Tesfaye Selamawit Yohannes Farzaneh
Shahrzad Bijan Khosrow Gulnara Timur Ayşe Mehmet Özlem Emre Devika Lakshmi Raghunath Venkata Padmini Suresh Harpreet
Gurpreet Nirmala Chandrika Xiuying Weiming Jingyi Haruki Masahiro Takako Yukiko Kenjiro Sunhee Jaehyun Minjung Quynh
Thuy Nguyet Bao Somchai Siriporn Malee Kalani Leilani Keoni Tevita Mele Aroha Tamati Wiremu Itzel Cuauhtemoc Xochitl
Guadalupe Refugio Esperanza Consuelo Joaquim Eugenia Anselmo Belarmino Graciela Fernando Beatriz Catarina Bernard
Harriet Gilbert Leonard Muriel Mildred Winifred Desmond Geraldine Rupert Clementine Barnaby Tabitha Jedidiah Ezekiel
Keziah Malachi Zephaniah Brunhilde Ekkehard Kunigunde Siegbert Theudis Aldhelm Wulfric Ermintrude Bronagh Caoilfhionn
Fearghal Lorcan Treasach Muirgheal Ruaraidh Mairead Eilidh Catriona Tegwen Myfanwy Iestyn Owain Brychan Jowan Kerensa
Demelza Meriasek Arjen Wubbo Tjitske Froukje Geertruida Maaike Sietske Aukje Tuulikki Väinö Aino Pirkko Eerikki Ülle
Kaarel Tõnu Maarika Rasmus Jurgis Vytautas Dalia Skirmante Ilze Janis Velta Imants
"""
FIRST_NAMES = tuple(_FIRST_NAMES.split())
_LAST_NAMES = """
Nakamura Quarshie Szczepaniak Thibodeaux Yilmazer Oyelaran Kowalski Matsuda Fujimoto Venkatesan Whitcombe Müller Jäger
Schröder Köhler Großmann Björklund Sørensen Håkansson Lindqvist Vanderslooten Featherstonehaugh Cholmondeley
Hallgrimsdottir Thorvaldsen Ramanathan Krishnamoorthy Bhattacharjee Chakraborty Mukhopadhyay Adeyemi-Bero Okonkwo-Smythe
Obafemi Nwachukwu Ezekwesili Mensah-Bonsu Asantewaa Boateng Kiplagat Wanyama Otieno Mutasa Chikwanha Dlamini-Zuma
Ndlovukazi Tshabalala Gebremariam Woldemichael Haile-Selassie Khoshbakht Rezaian Tabatabai Mirzakhani Abdulrahmanov
Karimova Yusupov Nazarbekov Dzhugashvili Kvaratskhelia Petrosyants Hovhannisian Sargsyanc Vukasinovic Milojevich
Hadzibegovic Krstulovic Dragomirescu Ceausoglu Ionescule Papadimitrakos Stathopoulou Karagiannidis Xenakides Zografou
Brzezinska Wisniewolski Grzybowska Krzyzanowski Dvorackova Hlavacek Svobodnik Novotnak Horvathy Szentgyorgyi Balogova
Nemethy Gulbenkian Etxeberria Goikoetxea Aguirrezabala Villaseñor Montañez Peñaranda Echeverry Urquijo-Lens Bustamantes
Caetanho Figueiroa Vasconcelhos Guimaraens Della-Rovere Bevilacquas Passalacqua Mezzogiorno Quattrocchi Tagliaferri
Desrochers-Roy Beauchesne Lachapelle Charbonneaux Duquesnoy Vandecasteele Goethals-Peeters Hoogendijk Terpstra-Wolf
Dijksterhuis Zuiderveld Rietveldt Hofstadtler Zimmerlin Obermoser Unterkofler Kaltenbrunn Steinhauser-Ott Grünfelder
Weissenbacher Pfefferkorn Zwingenberg Achterberger Blankenfelde Ashcombe-Reed Thistlewood Ravensdale Wetherspoon
Babington Fotheringay Marchbanks Quillfeather Brockenhurst Tolpuddle Penhaligon Trevithick Chegwidden Polkinghorne
Llewelynson Gethin-Rees Abercrombey Colquhoun-Hay MacGillivray Drumgoole Ó-Ceallaigh Fionnagain Scullabogue Tangaroa
Kahananui Kealohapau Fa'asavalu Tuilagi-Sao Nguyenova Phanthavong Xayasone Soukhamneut Wattanapanit Chaiyasarn
Bunyasaranand Sihombing Hutapea-Ras Wijayakusuma Tjokroaminoto Macaraegson Dimaculangan Batungbacal Panganiban Yoshimura
Hasegawa-Lutz Kobayakawa Shirakawa Ichinose Tsukishima Gwangsik Paekche Namgoongs Dokgo-Han Ouyangse Shangguans Zhugeyan
Huangfus Ulyanenko Hryhorenko Shevchukova Petlyura Bohdanets Lysychansk Rusanivka Jansons-Berg Kalninskas Grybauskas
Adamkevicius Tammsaare Kivimägi Pärnoja Virtasalmi Haapakoski Mäkitalo Leppävirta Rautavaaras
"""
LAST_NAMES = tuple(_LAST_NAMES.split())
NAMES_OF_WORDS = (
    "Will Young",
    "Grace Park",
    "Mark Long",
    "Rose Hill",
    "Dawn Wells",
    "Faith Fields",
    "Joy Banks",
    "Frank Stone",
    "Grant Woods",
    "Art Rich",
    "Bill Waters",
    "Hope Winters",
    "Summer Knight",
    "Autumn Brook",
    "Chase Rivers",
    "Ray Small",
    "Rob Banks",
    "Jack Frost",
    "Penny Price",
    "Robin Marsh",
    "Heath Moore",
    "Ivy Green",
    "Lily Field",
    "Olive Branch",
    "Pearl Harbor",
    "Ruby Light",
    "Sandy Beach",
    "Sky Walker",
    "Stone Cross",
    "Violet Winter",
    "Guy Rose",
    "Drew Case",
    "Gene Pool",
    "Miles Foot",
    "Mason Power",
    "Cole Mines",
    "Dale Cook",
    "Glen Forest",
    "Reed Bush",
    "Wade Pond",
    "June Day",
    "April Snow",
    "May Flowers",
    "August Sharp",
    "Melody Singer",
    "Carol Bell",
    "Christian Love",
    "Angel Young",
    "Patience Little",
    "Charity Good",
    "Prudence Wise",
    "Felicity Cross",
    "Earnest Strong",
    "Noble Short",
    "Major Payne",
    "Dean Street",
    "Sterling Silver",
    "Clay Potter",
    "Forest Green",
    "Rusty Nail",
    "Buddy Best",
    "Sunny Day",
    "Bud Barber",
    "Rich Gold",
    "Tad Sweet",
    "Rock Stern",
    "Jean Shorts",
    "Gill Fish",
    "Hunter Fox",
    "Lance Bishop",
    "Peg Wood",
    "Rusty Keys",
)
_TOWNS = """
Beaverton Klamath Tualatin Hermiston Pendleton Umatilla Scappoose Yachats Enterprise Wallowa Zigzag Boring Drain
Wenatchee Puyallup Sequim Issaquah Snohomish Walla-Walla Coeur-d'Alene Pocatello Kalispell Missoula Bozeman Laramie
Cheyenne Minot Fargo Bismarck Sheboygan Oconomowoc Waukesha Ypsilanti Kalamazoo Escanaba Chillicothe Zanesville
Poughkeepsie Schenectady Skaneateles Saugerties Winnemucca Tonopah Elko Tucumcari Socorro Truchas Waxahachie Nacogdoches
Texarkana Opelousas Natchitoches Bogalusa Tuscaloosa Opelika Valdosta Waycross Okeechobee Kissimmee Apalachicola
Aberystwyth Llanelli Machynlleth Tobermory Auchtermuchty Kirkcaldy Inverurie Ballymena Omagh Skibbereen Ballina
Wolverhampton Kidderminster Shrewsbury Ludlow Tewkesbury Cirencester Biggleswade Scunthorpe Mablethorpe Bielefeld
Gütersloh Recklinghausen Wanne-Eickel Zwickau Görlitz Winterthur Solothurn Bellinzona Locarno Zweisimmen Linköping
Norrköping Skellefteå Trondheim Stavanger Odense Aalborg Tampere Jyväskylä Tartu Pärnu Daugavpils Klaipeda Bydgoszcz
Rzeszow Olomouc Brno Szeged Debrecen Timisoara Plovdiv Thessaloniki Volos Gaziantep Diyarbakir Tabriz Kermanshah
Peshawar Faisalabad Jodhpur Coimbatore Madurai Chittagong Sylhet Mandalay Khon-Kaen Haiphong Makassar Surabaya Cagayan
Kumamoto Kagoshima Daejeon Chongqing Urumqi Mombasa Kisumu Bulawayo Gaborone Ibadan Kumasi Ouagadougou
"""
TOWNS = tuple(_TOWNS.split())
_STREETS = """
Quillwater Thornbeck Bahnhof Larkspur Tillamook Yarrow Hazelmere Foxglove Cattail Bramblewood Juniper Sagebrush Tamarack
Whippoorwill Kestrel Heron Otterburn Pennyroyal Candlewick Gristmill Cooperage Saltmarsh Driftwood Lamplighter Ropewalk
Tannery Coldwater Stonecrop Marigold Periwinkle Wisteria Honeysuckle Elderberry Huckleberry Chokecherry Serviceberry
Ponderosa Larch Hemlock Sycamore Mulberry Quince Medlar Damson Rowan Alder Aspen Sweetgum Basswood Buckeye Catalpa
Magnolia Gardenia Azalea Camellia Oleander Jacaranda Goethe Schiller Mozart Linden Rathaus Kirch Markt Garten Wiesen
Victor Voltaire Lafayette Pasteur Mirabeau
"""
STREETS = tuple(_STREETS.split())
COMPANIES = (
    "Brightwater Logistics",
    "Kestrel Foundry Ltd",
    "Oakhaven Timber Inc.",
    "Pinnacle Roofing LLC",
    "Halvorsen & Sons",
    "Northgate Motors",
    "Tillamook Creamery",
    "Zephyr Airways",
    "Ironbridge Steel",
    "Bluebird Bakery",
    "Cascade Plumbing Co.",
    "Marlowe Textiles",
    "Redfern Publishing",
    "Stellar Insurance Group",
    "Quantum Freight",
    "Harborview Cannery",
    "Westfield Dairy",
    "Grundfeld GmbH",
    "Solaris Energy AG",
    "Vantage Software",
    "Pacific Paper Mills",
    "Summit Ski Rentals",
    "Old Mill Brewery",
    "Lakeshore Cement Corp.",
    "Trident Shipping",
    "Mayfair Hotels",
    "Copperline Railways",
    "Silverton School District",
    "Bayside Auto Parts",
    "Evergreen Nurseries",
    "Delmonte Packing",
    "Tri-County Transit",
    "Nordlund Furniture",
    "Hillcrest Bank",
    "Falcon Security",
    "Acorn Childcare",
    "Meridian Telecom",
    "Baxley Construction",
    "Crown Laundry",
    "Sunrise Farms",
)
CLINICAL_SENTENCES = (
    "Pain 4/10 at rest, 6/10 on walking.",
    "Strength 3/5 in the left leg, 5/5 elsewhere.",
    "Reflexes 2+ throughout, toes downgoing.",
    "Blood pressure 142/88, pulse 92, temperature 37.4.",
    "Continue Lasix 40 mg and Coreg 6.25 mg twice daily.",
    "Zosyn 3.375 g every 6 hours, Vancomycin dosed by level.",
    "Parkinson disease, on Sinemet 25/100.",
    "Crohn disease, last flare two years ago.",
    "Known Hashimoto thyroiditis; Levothyroxine 75 mcg.",
    "Wilson disease was excluded by ceruloplasmin.",
    "Bell palsy improving on Prednisone.",
    "Foley catheter draining clear urine.",
    "Jackson-Pratt output 30 ml.",
    "Babinski sign absent on both sides.",
    "Murphy sign positive.",
    "Glasgow Coma Scale 15, NIHSS 2.",
    "Hemoglobin 10.2, platelets 250, white count 11.4.",
    "Sodium 138, potassium 4.1, creatinine 1.3.",
    "Troponin 0.04, then 0.03.",
    "INR 2.5 on Warfarin 5 mg.",
    "HbA1c 7.2 %, glucose 184.",
    "Ejection fraction 45 to 50 %.",
    "CT of the abdomen without contrast shows no stone.",
    "MRI: T2 signal in L4/L5, no cord compression.",
    "EKG with normal sinus rhythm, QTc 440.",
    "Whipple procedure planned.",
    "Status post Roux-en-Y bypass.",
    "Swan-Ganz catheter removed.",
    "Holter monitor for 48 hours.",
    "Apgar 8 and 9.",
    "Percocet 5/325 as needed, Colace 100 mg at night.",
    "Tylenol 650 mg every 6 hours.",
    "Insulin 70/30, 20 units in the morning.",
    "Vision 20/40 right, 20/20 left.",
    "Grade 2/6 systolic murmur at the base.",
    "BiPAP 12/5 overnight, 2 L by day.",
    "Gleason 3+4, PSA 6.2.",
    "Kerley B lines, no effusion.",
    "Mallory-Weiss tear seen at endoscopy.",
    "Barrett esophagus, Prague C2M4.",
    "Child-Pugh B, MELD 14.",
    "Wells score 3, D-dimer 812.",
    "CHA2DS2-VASc 4, HAS-BLED 2.",
    "Lumbar puncture: 3 cells, protein 42.",
    "Chief complaint: shortness of breath for 3 days.",
    "Past medical history: hypertension, COPD, gout.",
    "Review of systems otherwise negative.",
    "Allergies: Penicillin, Sulfa.",
    "Diet: Regular. Code status: Full.",
    "He may walk with a cane.",
    "She will return in May if the rash persists.",
    "Alert and oriented x3.",
    "Raynaud phenomenon in both hands.",
    "Dressler syndrome is unlikely.",
    "Trendelenburg gait on the right.",
    "Weber lateralises to the left, Rinne negative.",
    "Heparin drip per protocol.",
    "Started Eliquis 5 mg twice daily and Lipitor 80 mg.",
    "Humira every other week, last dose tolerated.",
    "Keppra level 22.",
    "Guillain-Barre syndrome in recovery.",
    "Started on Xarelto; Plavix was stopped.",
    "Gram stain shows Staphylococcus aureus.",
    "Clostridium difficile toxin negative.",
    "Escherichia coli in urine, over 100,000 colonies.",
    "Epstein-Barr serology pending.",
    "Lung fields clear, no wheeze.",
    "Skin warm and dry, Braden 18.",
    "Advair Diskus 250/50 and Spiriva daily.",
    "Normal Saline at 75 ml per hour.",
    "Drained 1200 ml of ascites, albumin 25 g given.",
    "SpO2 94 % on room air, FiO2 0.21.",
    "Weight 82.4 kg, height 178 cm, BMI 26.",
    "Ask about alcohol: 2 drinks a week.",
    "Pupils 3 mm, reactive.",
    "Sliding scale insulin with meals.",
    "Biopsy 12 cores, 3 positive.",
    "TSH 2.1, free T4 1.2.",
    "Stage IIIB, ER positive, HER2 negative.",
    "Ranson 2 on admission.",
    "Fall risk: Morse 45.",
    "Physical exam: no acute distress.",
    "Two units of packed red cells transfused.",
    "Bed 12 in room 4.",
    "Coumadin held, Lovenox 80 mg bridging.",
    "Dilantin level 14.2.",
    "Ventilator: FiO2 40 %, PEEP 8, rate 14.",
    "Patient is 67 years old.",
    "Three falls in six weeks.",
    "Phalen and Tinel signs positive.",
    "Ortho: Lachman 1+, McMurray negative.",
    "The fourth dose was given at the third visit.",
    "First trimester bleeding, second pregnancy.",
    "Week 12 of treatment, day 3 of the cycle.",
    "Serial troponins were flat.",
    "A plate and six screws hold the fibula.",
    "Call the lab with the sample.",
    "Kept NPO after midnight.",
    "Device check: battery fine.",
    "The code was called after 25 minutes.",
    "Unit of plasma given.",
    "He lives with his wife and drives a truck.",
)
